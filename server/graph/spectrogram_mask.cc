#include "server/graph/spectrogram_mask.h"

#include <algorithm>
#include <cstring>

namespace feedwater::server {

AxisMask DrawMask(int64_t size, int64_t most, double share, Draws& draws) {
  if (share < 1) most = std::min(most, static_cast<int64_t>(static_cast<double>(size) * share));
  const double length = draws.Uniform() * static_cast<double>(most),
               begin = draws.Uniform() * (static_cast<double>(size) - length);
  // A mask that is longer than the axis is torchaudio's own error; here it ends with the axis.
  const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(begin));
  return {first, std::min(size, first + static_cast<int64_t>(length))};
}

void MaskBands(const AudioShape& shape, AxisMask mask, float value, float* spectrogram) {
  for (int64_t c = 0; c < shape.channels; ++c) {
    float* const channel = spectrogram + c * shape.bands * shape.frames;
    std::fill(channel + mask.begin * shape.frames, channel + mask.end * shape.frames, value);
  }
}

void MaskFrames(const AudioShape& shape, AxisMask mask, float value, float* spectrogram) {
  for (int64_t row = 0; row < shape.channels * shape.bands; ++row) {
    float* const frames = spectrogram + row * shape.frames;
    std::fill(frames + mask.begin, frames + mask.end, value);
  }
}

absl::StatusOr<Specs> SpectrogramMaskOp::Plan(absl::Span<const TensorSpec> inputs,
                                              const PlanEnvironment&) const {
  FW_RETURN_IF_ERROR(FixedSpectrogramOf(inputs[0]).status());
  return Specs{inputs[0]};
}

absl::Status SpectrogramMaskOp::Run(Sample& sample, Draws draws) const {
  const Tensor& input = sample.inputs()[0];
  FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedSpectrogramOf(input.spec));
  FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
  std::memcpy(output.data, input.data, input.bytes());
  return Mask(shape, {output.as<float>(), static_cast<size_t>(output.elements())}, sample.clock(),
              draws);
}

}  // namespace feedwater::server
