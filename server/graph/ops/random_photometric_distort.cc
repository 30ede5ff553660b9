// Changes brightness, contrast, saturation, hue and the order of the channels, each with
// probability p, as torchvision's RandomPhotometricDistort does on PIL images: contrast before or
// after saturation and hue, alike likely.
#include <optional>

#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  Interval brightness{0.875, 1.125}, contrast{0.5, 1.5}, saturation{0.5, 1.5}, hue{-0.05, 0.05};
  double p = 0.5;
};

class RandomPhotometricDistort : public PointOp {
 public:
  explicit RandomPhotometricDistort(const Params& params) : params_(params) {}

  bool needs_image() const override { return params_.p > 0; }

  void Append(Draws draws, PointProgram* program) const override {
    // All is drawn whether it is used or not.
    const auto drawn = [&](const Interval& range) {
      const bool is_used = draws.Bernoulli(params_.p);
      const double value = draws.Uniform(range.low, range.high);
      return is_used ? std::optional<double>(value) : std::nullopt;
    };
    const auto brightness = drawn(params_.brightness), contrast = drawn(params_.contrast),
               saturation = drawn(params_.saturation), hue = drawn(params_.hue);
    const bool contrast_first = draws.Bernoulli(0.5), permutes = draws.Bernoulli(params_.p);
    const auto change_contrast = [&] { program->Contrast(static_cast<float>(*contrast)); };
    if (brightness) program->Blend(0, static_cast<float>(*brightness));
    if (contrast && contrast_first) change_contrast();
    if (saturation) program->Saturate(static_cast<float>(*saturation));
    if (hue) program->ShiftHue(static_cast<uint8_t>(static_cast<int>(*hue * 255)));
    if (contrast && !contrast_first) change_contrast();
    if (permutes) program->Permute(ChannelOrder(&draws));
  }

 private:
  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_photometric_distort")
        .Summary("Changes brightness, contrast, saturation, hue and the channels' order, each with "
                 "a given probability.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("brightness", &Params::brightness, "Range of its factor.", Range(0, 1000))
        .Param("contrast", &Params::contrast, "Range of its factor.", Range(0, 1000))
        .Param("saturation", &Params::saturation, "Range of its factor.", Range(0, 1000))
        .Param("hue", &Params::hue, "Range of its shift, in turns.", Range(-0.5, 0.5))
        .Param("p", &Params::p, "Probability of each change.", Range(0, 1))
        .Cost("Up to that of color_jitter.")
        .Example("- random_photometric_distort: {p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomPhotometricDistort"})
        .Create<RandomPhotometricDistort>());

}  // namespace
}  // namespace feedwater::server
