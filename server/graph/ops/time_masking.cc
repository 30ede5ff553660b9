// Sets some neighbouring frames of a spectrogram to one number, as
// torchaudio.transforms.TimeMasking does.
#include "server/graph/spectrogram_mask.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t time_mask_param = 0;
  double p = 1;
  double mask_value = 0;
};

class TimeMasking : public Op {
 public:
  explicit TimeMasking(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_RETURN_IF_ERROR(FixedSpectrogramOf(inputs[0]).status());
    return Specs{inputs[0]};
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedSpectrogramOf(sample.inputs()[0].spec));
    FW_ASSIGN_OR_RETURN(Tensor output, CopyOfInput(sample));
    const Mask mask = DrawMask(shape.frames, params_.time_mask_param, params_.p, &draws);
    MaskFrames(shape, mask, static_cast<float>(params_.mask_value), output.as<float>());
    return absl::OkStatus();
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("time_masking")
        .Summary(
            "Sets some neighbouring frames of a spectrogram to one number, as "
            "torchaudio.transforms.TimeMasking does. All channels of a sample have the same mask.")
        .Input(kSpectrogramPort)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Required("time_mask_param", &Params::time_mask_param,
                  "The mask is shorter than this many frames.", Range(0, 1 << 20))
        .Param("p", &Params::p, "Largest share of the frames that the mask may have.", Range(0, 1))
        .Param("mask_value", &Params::mask_value, "The number that is set.", Range(-1e6, 1e6))
        .Cost("A copy.")
        .Example("- time_masking: {in: mel, time_mask_param: 12}")
        .Create<TimeMasking>());

}  // namespace
}  // namespace feedwater::server
