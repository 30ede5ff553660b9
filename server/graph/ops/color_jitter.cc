// Changes brightness, contrast, saturation and hue by random amounts in random order, as
// torchvision.transforms.ColorJitter does on PIL images, with Pillow's arithmetic. Grey images have
// no saturation and no hue to change.
#include <array>

#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  JitterFactor brightness, contrast, saturation;
  HueShift hue;
  double p = 1;
};

class ColorJitter : public PointOp {
 public:
  explicit ColorJitter(const Params& params) : params_(params) {}

  bool needs_image() const override { return !IsNeutral(params_.contrast); }

  void Append(Draws draws, PointProgram* program) const override {
    // Order and amounts are drawn whether they are used or not, so that changing one range leaves
    // the other draws alone.
    std::array<int, 4> order = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[i], order[draws.Below(i + 1)]);
    const auto factor = [&](const JitterFactor& range) {
      return static_cast<float>(draws.Uniform(range.low, range.high));
    };
    const float brightness = factor(params_.brightness), contrast = factor(params_.contrast),
                saturation = factor(params_.saturation);
    const double hue = draws.Uniform(params_.hue.low, params_.hue.high);
    if (!draws.Bernoulli(params_.p)) return;
    for (int what : order) {
      if (what == 0 && !IsNeutral(params_.brightness)) program->Blend(0, brightness);
      if (what == 1 && !IsNeutral(params_.contrast)) program->Contrast(contrast);
      if (what == 2 && !IsNeutral(params_.saturation)) program->Saturate(saturation);
      if (what == 3 && (params_.hue.low != 0 || params_.hue.high != 0))
        program->ShiftHue(static_cast<uint8_t>(static_cast<int>(hue * 255)));
    }
  }

 private:
  static bool IsNeutral(const JitterFactor& factor) { return factor.low == 1 && factor.high == 1; }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("color_jitter")
        .Summary(
            "Changes brightness, contrast, saturation and hue by random amounts in random order.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("brightness", &Params::brightness,
               "Factor drawn from this range; a number x means [max(0, 1 - x), 1 + x]. 1 changes "
               "nothing, 0 is black.",
               Range(0, 1000))
        .Param("contrast", &Params::contrast,
               "Factor drawn from this range; a number x means [max(0, 1 - x), 1 + x]. 0 is grey "
               "of the mean brightness.",
               Range(0, 1000))
        .Param("saturation", &Params::saturation,
               "Factor drawn from this range; a number x means [max(0, 1 - x), 1 + x]. 0 is a grey "
               "image.",
               Range(0, 1000))
        .Param(
            "hue", &Params::hue,
            "Shift drawn from this range, in turns of the colour circle; a number x means [-x, x].",
            Range(-0.5, 0.5))
        .LaterParam("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("A pass over the image, and a look at the whole of it first where contrast changes. "
              "Hue "
              "costs several times as much as the others.")
        .Example("- color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}")
        .AlsoKnownAs("torchvision", {"ColorJitter"})
        .AlsoKnownAs("Albumentations", {"ColorJitter"})
        .AlsoKnownAs("MindSpore", {"RandomColorAdjust"})
        .NearestTo("MindSpore", {"RandomColor"})
        .NearestTo("DALI", {"color_twist", "hsv", "brightness_contrast"})
        .NearestTo("Albumentations", {"RandomBrightnessContrast", "HueSaturationValue", "RGBShift"})
        .Create<ColorJitter>());

}  // namespace
}  // namespace feedwater::server
