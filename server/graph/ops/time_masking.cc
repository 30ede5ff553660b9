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

class TimeMasking final : public SpectrogramMaskOp {
 public:
  explicit TimeMasking(const Params& params) : params_(params) {}

 private:
  absl::Status Mask(const AudioShape& shape, absl::Span<float> spectrogram, WorkClock&,
                    Draws& draws) const override {
    const AxisMask mask = DrawMask(shape.frames, params_.time_mask_param, params_.p, draws);
    MaskFrames(shape, mask, static_cast<float>(params_.mask_value), spectrogram.data());
    return absl::OkStatus();
  }

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
