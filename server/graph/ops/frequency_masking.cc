// Sets some neighbouring bands of a spectrogram to one number, as
// torchaudio.transforms.FrequencyMasking does.
#include "server/graph/spectrogram_mask.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t freq_mask_param = 0;
  double mask_value = 0;
};

class FrequencyMasking final : public SpectrogramMaskOp {
 public:
  explicit FrequencyMasking(const Params& params) : params_(params) {}

 private:
  absl::Status Mask(const AudioShape& shape, absl::Span<float> spectrogram, WorkClock&,
                    Draws& draws) const override {
    const AxisMask mask = DrawMask(shape.bands, params_.freq_mask_param, 1, draws);
    MaskBands(shape, mask, static_cast<float>(params_.mask_value), spectrogram.data());
    return absl::OkStatus();
  }

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
