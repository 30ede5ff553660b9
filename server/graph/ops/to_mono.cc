// The mean of a waveform's channels, as torch.mean(waveform, dim=0) and librosa.to_mono give it.
#include "server/graph/audio_op.h"

namespace feedwater::server {
namespace {

struct Params {
  bool keepdim = false;
};

constexpr int64_t kFramesBetweenLooks = 1 << 14;

class ToMono : public Op {
 public:
  explicit ToMono(const Params& params) : keepdim_(params.keepdim) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(inputs[0]));
    TensorSpec spec = inputs[0];
    spec.shape = {shape.frames};
    if (keepdim_) spec.shape = {1, shape.frames};
    return Specs{spec};
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedWaveformOf(input.spec));
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, sample.planned(0)));
    const float* const from = input.as<float>();
    float* const to = output.as<float>();
    const float share = 1.0f / static_cast<float>(shape.channels);
    for (int64_t t = 0; t < shape.frames; ++t) {
      if (t % kFramesBetweenLooks == 0) FW_RETURN_IF_ERROR(sample.clock().Check());
      float sum = from[t];
      for (int64_t c = 1; c < shape.channels; ++c) sum += from[c * shape.frames + t];
      to[t] = sum * share;
    }
    return absl::OkStatus();
  }

 private:
  const bool keepdim_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("to_mono")
        .Summary("Gives the mean of a waveform's channels. Where nothing else needs the channels, "
                 "decode_audio with mono: true gives it at once.")
        .Input(kAudioPort)
        .OutputLikeInput()
        .Param("keepdim", &Params::keepdim,
               "Leaves an axis of one channel: [1, frames]. Else the axis goes: [frames].")
        .Cost("Next to nothing.")
        .Example("- to_mono: {in: audio}")
        .Create<ToMono>());

}  // namespace
}  // namespace feedwater::server
