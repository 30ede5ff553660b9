// FLAC: metadata blocks, the first of which says how many samples there are, then frames, each with
// a checksum that libFLAC compares.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/audio/audio_file.h"
#include "server/audio/audio_tags.h"
#include "server/audio/flac_frames.h"

namespace feedwater::server {

absl::StatusOr<AudioFile> ReadFlac(absl::Span<const uint8_t> bytes) {
  constexpr size_t kMarker = 4, kBlockHeader = 4, kStreamInfo = 34,
                   kInfoEnd = kMarker + kBlockHeader + kStreamInfo;
  if (bytes.size() < kInfoEnd || (bytes[4] & 0x7f) != 0 || Big24(&bytes[5]) != kStreamInfo)
    return absl::InvalidArgumentError("FLAC does not begin with its stream info");
  const uint8_t* const info = &bytes[kMarker + kBlockHeader];
  AudioFile file;
  file.format = "FLAC";
  file.rate = Big24(info + 10) >> 4;
  file.channels = ((info[12] >> 1) & 7) + 1;
  file.most_frames = static_cast<int64_t>(uint64_t{info[13] & 0x0fu} << 32 | Big32(info + 14));
  size_t at = kMarker;
  for (bool is_last = false; !is_last;) {
    if (bytes.size() - at < kBlockHeader)
      return absl::InvalidArgumentError("FLAC is cut off within its header");
    is_last = (bytes[at] & 0x80) != 0;
    const size_t length = Big24(&bytes[at + 1]);
    at += kBlockHeader;
    if (bytes.size() - at < length)
      return absl::InvalidArgumentError("FLAC is cut off within its header");
    at += length;
  }
  std::memcpy(file.head.data(), bytes.data(), kInfoEnd);
  file.head[kMarker] = 0x80;  // the last block
  file.head_bytes = kInfoEnd;
  file.body = bytes.subspan(at);
  file.body = file.body.first(TagsAtEnd(file.body));
  // A program that writes to a pipe cannot say how many there are: the frames do.
  file.is_exact = file.most_frames > 0;
  if (!file.is_exact) file.most_frames = MostFlacSamples(file.body.size());
  return file;
}

}  // namespace feedwater::server
