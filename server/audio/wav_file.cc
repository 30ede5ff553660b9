// WAV: chunks, of which `fmt ` says how samples are stored and `data` holds them.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kPcm = 1, kFloat = 3, kALaw = 6, kMuLaw = 7, kExtensible = 0xfffe;
struct Known {
  uint32_t tag, bits;
  WavSample sample;
};
constexpr Known kKnown[] = {{kPcm, 8, WavSample::kWhole8},     {kPcm, 16, WavSample::kWhole16},
                            {kPcm, 24, WavSample::kWhole24},   {kPcm, 32, WavSample::kWhole32},
                            {kFloat, 32, WavSample::kFloat32}, {kFloat, 64, WavSample::kFloat64},
                            {kALaw, 8, WavSample::kALaw},      {kMuLaw, 8, WavSample::kMuLaw}};
// What programs write that cannot go back to fill in the length: 2^31 or 2^32, less some headers.
bool IsUnknownLength(uint32_t bytes) {
  return bytes >= 0xffff0000u || (bytes >= 0x7fff0000u && bytes <= 0x80000000u);
}
// The file's own length, where a program wrote a header without samples and never came back: that
// of the header, which ends at `header_end`, or no length at all.
bool IsLengthWithoutSamples(uint32_t bytes, size_t header_end) {
  return bytes + size_t{8} <= header_end || IsUnknownLength(bytes);
}

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("WAV ", what));
}

struct Format {
  uint32_t tag = 0, channels = 0, rate = 0, frame_bytes = 0, bits = 0;
  WavSample sample = WavSample::kWhole16;
};

absl::StatusOr<Format> ReadFormat(absl::Span<const uint8_t> chunk) {
  if (chunk.size() < 16) return Damaged("has a fmt chunk that is too short");
  Format format{Little16(&chunk[0]), Little16(&chunk[2]), Little32(&chunk[4]), Little16(&chunk[12]),
                Little16(&chunk[14])};
  if (format.tag == kExtensible) {
    if (chunk.size() < 40) return Damaged("has a fmt chunk that is too short");
    format.tag = Little16(&chunk[24]);
  }
  // A whole number of fewer bits stands in the upper ones of as many bytes as it needs.
  const uint32_t bits = format.tag == kPcm ? (format.bits + 7) / 8 * 8 : format.bits;
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) {
    return k.tag == format.tag && k.bits == bits;
  });
  if (known == std::end(kKnown)) {
    return Damaged(absl::StrFormat(
        "of coding 0x%04x with %d bits a sample is not read: PCM of up to 32 bits, floats of 32 "
        "and 64, A-law and mu-law are; convert it",
        format.tag, format.bits));
  }
  format.sample = known->sample;
  if (format.channels == 0 || format.frame_bytes != format.channels * bits / 8) {
    return Damaged(absl::StrCat("says ", format.channels, " channels of ", format.bits,
                                " bits and ", format.frame_bytes,
                                " bytes a frame, which do not fit together"));
  }
  return format;
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
    const bool is_unfinished = promised == 0 && IsLengthWithoutSamples(Little32(&bytes[4]), at + 8);
    const size_t length = is_unfinished ? there : std::min<size_t>(promised, there);
    file.most_frames = static_cast<int64_t>(length / format.frame_bytes);
    file.is_exact = true;
    file.wav_sample = format.sample;
    file.body = bytes.subspan(at + 8, static_cast<size_t>(file.most_frames) * format.frame_bytes);
    return file;
  }
  return Damaged("has no samples: it is cut off, or has no data chunk");
}

}  // namespace feedwater::server
