// Masks over bands or frames of a spectrogram, as torchaudio.functional.mask_along_axis draws them:
// what frequency_masking, time_masking and spec_augment share.
#pragma once

#include <cstdint>

#include "server/base/philox.h"
#include "server/graph/audio_op.h"
#include "server/graph/op.h"

namespace feedwater::server {

struct AxisMask {
  int64_t begin = 0, end = 0;
};

// Of an axis of `size`: as long as Uniform(0, most) says, at a place that Uniform says; always two
// draws. `share` of the axis is the most that may go.
AxisMask DrawMask(int64_t size, int64_t most, double share, Draws& draws);

// Fills the bands, or the frames, in all channels.
void MaskBands(const AudioShape& shape, AxisMask mask, float value, float* spectrogram);
void MaskFrames(const AudioShape& shape, AxisMask mask, float value, float* spectrogram);

// An op that masks parts of a spectrogram; its output is a copy with the masks.
class SpectrogramMaskOp : public Op {
 public:
  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const final;
  absl::Status Run(Sample& sample, Draws draws) const final;

 private:
  virtual absl::Status Mask(const AudioShape& shape, absl::Span<float> spectrogram,
                            WorkClock& clock, Draws& draws) const = 0;
};

}  // namespace feedwater::server
