// MP3: frames of a length that each one says, between tags. All headers are looked at, since the
// decoder would search for the next good one where one is damaged.
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/audio/audio_file.h"
#include "server/audio/audio_tags.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr int kKilobits[2][16] = {
    {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0},
    {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0}};
constexpr int64_t kRates[4] = {44100, 48000, 32000, 0};
constexpr size_t kHeader = 4;

absl::Status Damaged(absl::string_view what, size_t at) {
  return absl::InvalidArgumentError(absl::StrCat("MP3 ", what, " (byte ", at, ")"));
}

struct Frame {
  int64_t rate = 0;
  int channels = 0;
  int64_t samples = 0;
  size_t bytes = 0, side_bytes = 0;  // of all; of what stands between header and data
};

absl::StatusOr<Frame> ReadFrame(const uint8_t* at, size_t place) {
  const int version = at[1] >> 3 & 3, layer = at[1] >> 1 & 3;  // 3: MPEG 1, 2: 2, 0: 2.5
  if (at[0] != 0xff || (at[1] & 0xe0) != 0xe0) {
    return Damaged("has no frame where one must begin: it is damaged, or holds other data", place);
  }
  if (layer == 0) return absl::InvalidArgumentError("is AAC (ADTS), which is not read");
  if (layer != 1) return absl::InvalidArgumentError("is MPEG audio of layer I or II: not read");
  const bool is_mpeg_1 = version == 3;
  const int64_t bits = kKilobits[is_mpeg_1 ? 1 : 0][at[2] >> 4] * int64_t{1000};
  const int64_t rate = kRates[at[2] >> 2 & 3];
  if (version == 1 || rate == 0 || (at[2] >> 4) == 15) return Damaged("has a damaged frame", place);
  if (bits == 0) return Damaged("of free format is not read", place);
  Frame frame;
  frame.rate = version == 3 ? rate : version == 2 ? rate / 2 : rate / 4;
  frame.channels = (at[3] >> 6) == 3 ? 1 : 2;
  frame.samples = is_mpeg_1 ? 1152 : 576;
  frame.bytes = static_cast<size_t>(frame.samples / 8 * bits / frame.rate + (at[2] >> 1 & 1));
  frame.side_bytes = is_mpeg_1 ? (frame.channels == 1 ? 17 : 32) : (frame.channels == 1 ? 9 : 17);
  return frame;
}

// Of a first frame that holds no sound, but a table: the frames behind it; -1: it holds sound.
int64_t FramesOfTable(absl::Span<const uint8_t> frame, size_t side_bytes) {
  const size_t xing = kHeader + side_bytes, vbri = kHeader + 32;
  const auto is = [&](size_t at, const char* name) {
    return frame.size() >= at + 18 && std::memcmp(&frame[at], name, 4) == 0;
  };
  if (is(xing, "Xing") || is(xing, "Info"))
    return (frame[xing + 7] & 1) != 0 ? Big32(&frame[xing + 8]) : 0;
  if (is(vbri, "VBRI")) return Big32(&frame[vbri + 14]);
  return -1;
}

// The frame that begins here, all of which is there.
absl::StatusOr<Frame> ReadWholeFrame(absl::Span<const uint8_t> bytes, size_t at) {
  if (bytes.size() - at < kHeader) return Damaged("is cut off within its last frame", at);
  FW_ASSIGN_OR_RETURN(const Frame frame, ReadFrame(&bytes[at], at));
  if (frame.bytes > bytes.size() - at) return Damaged("is cut off within its last frame", at);
  if (frame.bytes < kHeader + frame.side_bytes) return Damaged("has a damaged frame", at);
  return frame;
}

}  // namespace

absl::StatusOr<AudioFile> ReadMp3(absl::Span<const uint8_t> bytes) {
  AudioFile file;
  file.format = "MP3";
  const std::optional<size_t> begin = BehindTags(bytes, 0);
  if (!begin) return Damaged("is cut off within a tag", 0);
  int64_t frames = 0, promised = -1;
  size_t at = *begin;
  while (at < bytes.size()) {
    auto frame = ReadWholeFrame(bytes, at);
    if (frame.ok() && frames > 0 &&
        (frame->rate != file.rate || frame->channels != file.channels)) {
      frame = Damaged("changes its rate or its channels", at);
    }
    if (!frame.ok()) {
      // Behind the frames that a table promises there may be anything; else tags alone, since
      // frames may go on behind what is not known.
      if (promised > 0 && frames > promised) break;
      if (frames > 0 && AreTags(bytes.subspan(at))) break;
      return frame.status();
    }
    if (frames == 0) {
      file.rate = frame->rate;
      file.channels = frame->channels;
      promised = FramesOfTable(bytes.subspan(at, frame->bytes), frame->side_bytes);
    }
    file.most_frames += frame->samples;
    ++frames;
    at += frame->bytes;
  }
  if (promised >= frames) {
    return absl::InvalidArgumentError(
        absl::StrCat("MP3 is cut off: of ", promised, " frames ", frames - 1, " are there"));
  }
  file.body = bytes.subspan(*begin, at - *begin);
  return file;
}

}  // namespace feedwater::server
