// Masks over bands or frames of a spectrogram, as torchaudio.functional.mask_along_axis draws them:
// what frequency_masking, time_masking and spec_augment share.
#pragma once

#include <cstdint>

#include "server/base/philox.h"
#include "server/graph/audio_op.h"

namespace feedwater::server {

struct Mask {
  int64_t begin = 0, end = 0;
};

// Of an axis of `size`: as long as Uniform(0, most) says, at a place that Uniform says; always two
// draws. `share` of the axis is the most that may go.
Mask DrawMask(int64_t size, int64_t most, double share, Draws* draws);

// Fills the bands, or the frames, in all channels.
void MaskBands(const AudioShape& shape, Mask mask, float value, float* spectrogram);
void MaskFrames(const AudioShape& shape, Mask mask, float value, float* spectrogram);

// Output 0 as a copy of input 0.
absl::StatusOr<Tensor> CopyOfInput(Sample& sample);

}  // namespace feedwater::server
