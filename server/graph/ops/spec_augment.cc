// SpecAugment: several masks over the frames and the bands of a spectrogram, as
// torchaudio.transforms.SpecAugment draws them.
#include "server/graph/spectrogram_mask.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t n_time_masks = 0, time_mask_param = 0, n_freq_masks = 0, freq_mask_param = 0;
  double p = 1;
  bool zero_masking = false;
};

class SpecAugment final : public SpectrogramMaskOp {
 public:
  explicit SpecAugment(const Params& params) : params_(params) {}

 private:
  absl::Status Mask(const AudioShape& shape, absl::Span<float> spectrogram, WorkClock& clock,
                    Draws& draws) const override {
    float value = 0;
    if (!params_.zero_masking) {
      double sum = 0;
      for (const float number : spectrogram) sum += static_cast<double>(number);
      value = static_cast<float>(sum / static_cast<double>(spectrogram.size()));
    }
    for (int64_t i = 0; i < params_.n_time_masks; ++i) {
      FW_RETURN_IF_ERROR(clock.Check());
      MaskFrames(shape, DrawMask(shape.frames, params_.time_mask_param, params_.p, draws), value,
                 spectrogram.data());
    }
    for (int64_t i = 0; i < params_.n_freq_masks; ++i) {
      FW_RETURN_IF_ERROR(clock.Check());
      MaskBands(shape, DrawMask(shape.bands, params_.freq_mask_param, params_.p, draws), value,
                spectrogram.data());
    }
    return absl::OkStatus();
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("spec_augment")
        .Summary("Masks frames, then bands, of a spectrogram several times, as "
                 "torchaudio.transforms.SpecAugment does. The masks have the mean of the "
                 "spectrogram. All channels of a sample have the same masks.")
        .Input(kSpectrogramPort)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Required("n_time_masks", &Params::n_time_masks, "Number of masks over frames.",
                  Range(0, 1000))
        .Required("time_mask_param", &Params::time_mask_param,
                  "Each is shorter than this many frames.", Range(0, 1 << 20))
        .Required("n_freq_masks", &Params::n_freq_masks, "Number of masks over bands.",
                  Range(0, 1000))
        .Required("freq_mask_param", &Params::freq_mask_param,
                  "Each is shorter than this many bands.", Range(0, 1 << 20))
        .Param("p", &Params::p, "Largest share of the axis that one mask may have.", Range(0, 1))
        .Param("zero_masking", &Params::zero_masking,
               "Sets what is masked to 0 instead of the spectrogram's mean.")
        .Cost("A copy, and one pass for the mean.")
        .Example("- spec_augment: {in: mel, n_time_masks: 2, time_mask_param: 10, n_freq_masks: 2, "
                 "freq_mask_param: 8}")
        .Create<SpecAugment>());

}  // namespace
}  // namespace feedwater::server
