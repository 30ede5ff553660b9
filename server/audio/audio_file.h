// What an audio file is, read by our own code before any library meets it: container, codec, rate,
// channels, and how many frames (one sample of each channel) there are at most. A file that is cut,
// or that is not one of these, is refused here. Of what it holds beside the samples (tags,
// pictures, cue points) the library gets nothing to see.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace feedwater::server {

inline constexpr int kMostAudioChannels = 64;

// How a number lies in a WAV file.
enum class WavSample { kWhole8, kWhole16, kWhole24, kWhole32, kFloat32, kFloat64, kALaw, kMuLaw };

struct AudioFile {
  const char* format = "";  // "WAV", "FLAC", "Ogg Vorbis", "Ogg Opus", "MP3"
  int64_t rate = 0;         // Hz
  int channels = 0;
  int64_t most_frames = 0;
  bool is_exact = false;  // there are most_frames, as the header says
  WavSample wav_sample = WavSample::kWhole16;
  int64_t last_granule = 0;  // of Ogg: what its last page says
  // What is decoded: for FLAC a header of our own, and then the file's samples.
  std::array<uint8_t, 42> head = {};
  size_t head_bytes = 0;
  absl::Span<const uint8_t> body;
};

// InvalidArgument: says what the bytes are instead, what is cut off, or which kind is not read.
absl::StatusOr<AudioFile> ReadAudioFile(absl::Span<const std::byte> encoded);

// The containers, by their first bytes. REQUIRES: those are there.
absl::StatusOr<AudioFile> ReadWav(absl::Span<const uint8_t> bytes);
absl::StatusOr<AudioFile> ReadFlac(absl::Span<const uint8_t> bytes);
absl::StatusOr<AudioFile> ReadOgg(absl::Span<const uint8_t> bytes);
absl::StatusOr<AudioFile> ReadMp3(absl::Span<const uint8_t> bytes);

// Numbers in files. REQUIRES: the bytes are there.
inline uint32_t Little16(const uint8_t* at) { return at[0] | uint32_t{at[1]} << 8; }
inline uint32_t Little32(const uint8_t* at) { return Little16(at) | Little16(at + 2) << 16; }
inline uint32_t Big24(const uint8_t* at) {
  return uint32_t{at[0]} << 16 | uint32_t{at[1]} << 8 | at[2];
}
inline uint32_t Big32(const uint8_t* at) { return uint32_t{at[0]} << 24 | Big24(at + 1); }

}  // namespace feedwater::server
