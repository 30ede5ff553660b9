// WAV: chunks, of which `fmt ` says how samples are stored and `data` holds them.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kPcm = 1, kFloat = 3, kALaw = 6, kMuLaw = 7, kExtensible = 0xfffe;
// What programs write that cannot go back to fill in the length: 2^31 or 2^32, less some headers.
bool IsUnknownLength(uint32_t bytes) {
  return bytes >= 0xffff0000u || (bytes >= 0x7fff0000u && bytes <= 0x80000000u);
}

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("WAV ", what));
}

struct Format {
  uint32_t tag = 0, channels = 0, rate = 0, frame_bytes = 0, bits = 0;
};

absl::StatusOr<Format> ReadFormat(absl::Span<const uint8_t> chunk) {
  if (chunk.size() < 16) return Damaged("has a fmt chunk that is too short");
  Format format{Little16(&chunk[0]), Little16(&chunk[2]), Little32(&chunk[4]), Little16(&chunk[12]),
                Little16(&chunk[14])};
  if (format.tag == kExtensible) {
    if (chunk.size() < 40) return Damaged("has a fmt chunk that is too short");
    format.tag = Little16(&chunk[24]);
  }
  const uint32_t bits = format.bits;
  const bool is_known =
      (format.tag == kPcm && (bits == 8 || bits == 16 || bits == 24 || bits == 32)) ||
      (format.tag == kFloat && (bits == 32 || bits == 64)) ||
      ((format.tag == kALaw || format.tag == kMuLaw) && bits == 8);
  if (!is_known) {
    return Damaged(absl::StrFormat(
        "of coding 0x%04x with %d bits a sample is not read: PCM of 8, 16, 24 and 32 bits, floats "
        "of 32 and 64, A-law and mu-law are; convert it",
        format.tag, bits));
  }
  if (format.channels == 0 || format.frame_bytes != format.channels * bits / 8) {
    return Damaged(absl::StrCat("says ", format.channels, " channels of ", bits, " bits and ",
                                format.frame_bytes, " bytes a frame, which do not fit together"));
  }
  return format;
}

void Put(uint32_t value, size_t bytes, AudioFile* file) {
  for (size_t i = 0; i < bytes; ++i)
    file->head[file->head_bytes++] = static_cast<uint8_t>(value >> (8 * i));
}
void Put(const char* name, AudioFile* file) {
  std::memcpy(file->head.data() + file->head_bytes, name, 4);
  file->head_bytes += 4;
}

}  // namespace

absl::StatusOr<AudioFile> ReadWav(absl::Span<const uint8_t> bytes) {
  Format format;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const uint8_t* const chunk = &bytes[at];
    const uint32_t promised = Little32(chunk + 4);
    const size_t there = bytes.size() - at - 8;
    if (std::memcmp(chunk, "data", 4) != 0) {
      if (promised > there) return Damaged("is cut off within its header");
      if (std::memcmp(chunk, "fmt ", 4) == 0) {
        auto read = ReadFormat(bytes.subspan(at + 8, promised));
        if (!read.ok()) return read.status();
        format = *read;
      }
      at += 8 + size_t{promised} + promised % 2;
      continue;
    }
    if (format.channels == 0) return Damaged("has no fmt chunk before its samples");
    if (promised > there && !IsUnknownLength(promised)) {
      return Damaged(
          absl::StrCat("is cut off: of ", promised, " bytes of samples ", there, " are there"));
    }
    AudioFile file;
    file.format = "WAV";
    file.rate = format.rate;
    file.channels = static_cast<int>(format.channels);
    file.most_frames = static_cast<int64_t>(std::min<size_t>(promised, there) / format.frame_bytes);
    file.is_exact = true;
    const size_t data = static_cast<size_t>(file.most_frames) * format.frame_bytes;
    if (data > 0x7ffffff0u) return Damaged("holds more than 2 GiB of samples");
    file.body = bytes.subspan(at + 8, data);
    Put("RIFF", &file);
    Put(static_cast<uint32_t>(36 + data), 4, &file);
    Put("WAVE", &file);
    Put("fmt ", &file);
    Put(16, 4, &file);
    Put(format.tag, 2, &file);
    Put(format.channels, 2, &file);
    Put(format.rate, 4, &file);
    Put(format.rate * format.frame_bytes, 4, &file);
    Put(format.frame_bytes, 2, &file);
    Put(format.bits, 2, &file);
    Put("data", &file);
    Put(static_cast<uint32_t>(data), 4, &file);
    return file;
  }
  return Damaged("has no samples: it is cut off, or has no data chunk");
}

}  // namespace feedwater::server
