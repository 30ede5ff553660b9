// FLAC's frames, one after the other, before libFLAC decodes them, which compares nothing of what
// the stream info says with them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "server/audio/audio_file.h"

namespace feedwater::server {

// No frame has more samples, or takes fewer bytes: a header of 6, and a checksum.
inline constexpr int64_t kMostFlacFrameSamples = 1 << 16;
inline constexpr size_t kLeastFlacFrameBytes = 8;
constexpr int64_t MostFlacSamples(size_t body_bytes) {
  return static_cast<int64_t>(body_bytes / kLeastFlacFrameBytes) * kMostFlacFrameSamples;
}

// How many samples there are. InvalidArgument: a frame that is damaged or missing, one of another
// rate, number of channels or of bits than the stream info in file.head says, or more or fewer
// samples in all than it promises, if it does. A frame may leave rate and bits to the stream info;
// then nothing shows that it is wrong. Takes time in proportion to the file's length, and no
// memory. REQUIRES: `file` is from ReadFlac.
absl::StatusOr<int64_t> CountFlacSamples(const AudioFile& file);

}  // namespace feedwater::server
