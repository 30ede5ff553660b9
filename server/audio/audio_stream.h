// From an audio file to samples of another rate, block by block: beside the result only some
// thousand frames are in memory, however long the file is.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/audio/audio_decoder.h"
#include "server/audio/resampler.h"
#include "server/base/work_clock.h"

namespace feedwater::server {

struct AudioStream {
  const AudioFile* file = nullptr;
  AudioDecoder* decoder = nullptr;       // opened
  const ResampleRatio* ratio = nullptr;  // from the file's rate
  const float* weights = nullptr;        // of the ratio; unused where the rates are the same
  int channels = 1;                      // the file's, or 1: the mean of all
};

// Of channel c and frame t: out[c * frames + t], where `frames` is what the ratio makes of
// decoder->frames(). `scratch` has StreamScratchFloats. InvalidArgument: damaged, cut, or a sample
// that is infinite or no number.
absl::Status RunStream(const AudioStream& stream, float* scratch, WorkClock& clock, float* out);
int64_t StreamScratchFloats(int channels);

}  // namespace feedwater::server
