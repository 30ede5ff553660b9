// Sets some neighbouring bands of a spectrogram to one number, as
// torchaudio.transforms.FrequencyMasking does.
#include "server/graph/spectrogram_mask.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t freq_mask_param = 0;
  double mask_value = 0;
};

class FrequencyMasking : public Op {
 public:
  explicit FrequencyMasking(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    FW_RETURN_IF_ERROR(FixedSpectrogramOf(inputs[0]).status());
    return Specs{inputs[0]};
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    FW_ASSIGN_OR_RETURN(const AudioShape shape, FixedSpectrogramOf(sample.inputs()[0].spec));
    FW_ASSIGN_OR_RETURN(Tensor output, CopyOfInput(sample));
    const Mask mask = DrawMask(shape.bands, params_.freq_mask_param, 1, &draws);
    MaskBands(shape, mask, static_cast<float>(params_.mask_value), output.as<float>());
    return absl::OkStatus();
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("frequency_masking")
                                 .Summary("Sets some neighbouring bands of a spectrogram to one "
                                          "number, as torchaudio.transforms.FrequencyMasking does. "
                                          "All channels of a sample have the same mask.")
                                 .Input(kSpectrogramPort)
                                 .OutputLikeInput()
                                 .Randomness(Randomness::kPerSample)
                                 .Required("freq_mask_param", &Params::freq_mask_param,
                                           "The mask is shorter than this many bands.",
                                           Range(0, 1 << 20))
                                 .Param("mask_value", &Params::mask_value,
                                        "The number that is set.", Range(-1e6, 1e6))
                                 .Cost("A copy.")
                                 .Example("- frequency_masking: {in: mel, freq_mask_param: 12}")
                                 .Create<FrequencyMasking>());

}  // namespace
}  // namespace feedwater::server
