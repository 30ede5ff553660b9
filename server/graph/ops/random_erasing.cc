// Covers a random part of an image, as torchvision.transforms.RandomErasing does: ten tries of an
// area share and a ratio; if none fits, the image stays as it is. Before or after normalize, HWC or
// CHW, any dtype.
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

struct Params {
  double p = 0.5;
  Interval scale = {0.02, 0.33};
  Interval ratio = {0.3, 3.3};
  FillColor value;
  bool noise = false;
};

constexpr int kTries = 10;

class RandomErasing : public Op {
 public:
  explicit RandomErasing(Params params)
      : params_(std::move(params)),
        log_ratio_{std::log(params_.ratio.low), std::log(params_.ratio.high)},
        value_(FillOf(params_.value)) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override {
    FW_RETURN_IF_ERROR(CheckFill(inputs, environment, "value", params_.value));
    return Specs{inputs[0]};
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    std::memcpy(output.data, input.data, input.bytes());
    Rect part;
    if (draws.Bernoulli(params_.p) && Choose(ImageSizeOf(input.spec), draws, &part))
      return Erase(output, part, draws, sample.clock());
    return absl::OkStatus();
  }

 private:
  bool Choose(Size size, Draws& draws, Rect* part) const {
    const double area = static_cast<double>(size.height) * size.width;
    for (int i = 0; i < kTries; ++i) {
      const double erased = area * draws.Uniform(params_.scale.low, params_.scale.high);
      const double aspect = std::exp(draws.Uniform(log_ratio_.low, log_ratio_.high));
      const double h = std::nearbyint(std::sqrt(erased * aspect)),
                   w = std::nearbyint(std::sqrt(erased / aspect));
      if (h >= size.height || w >= size.width) continue;
      part->height = static_cast<int>(h);
      part->width = static_cast<int>(w);
      part->y = static_cast<int>(draws.Below(size.height - part->height + 1));
      part->x = static_cast<int>(draws.Below(size.width - part->width + 1));
      return true;
    }
    return false;
  }

  absl::Status Erase(const Tensor& image, Rect part, Draws& draws, WorkClock& clock) const {
    if (!params_.noise) {
      FillRect(image, part, value_);
      return absl::OkStatus();
    }
    const Size size = ImageSizeOf(image.spec);
    const DType dtype = image.spec.dtype;
    const int64_t channels = ChannelsOf(image.spec);
    const auto bytes = static_cast<int64_t>(DTypeSize(dtype));
    const bool planar = image.spec.layout == Layout::kCHW;
    const int64_t planes = planar ? channels : 1, values = planar ? 1 : channels;
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int64_t y = part.y; y < part.y + part.height; ++y) {
        FW_RETURN_IF_ERROR(clock.Check());
        std::byte* to =
            image.data + ((plane * size.height + y) * size.width + part.x) * values * bytes;
        for (int64_t i = 0; i < part.width * values; ++i, to += bytes)
          StoreDouble(dtype, Noise(dtype, draws), to);
      }
    }
    return absl::OkStatus();
  }

  static double Noise(DType dtype, Draws& draws) {
    return IsFloating(dtype) ? draws.Normal() : static_cast<double>(draws.Below(256));
  }

  const Params params_;
  const Interval log_ratio_;
  const PixelFill value_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_erasing")
        .Summary("Covers a random part of an image with a given probability.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The image."})
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Param("scale", &Params::scale, "Area of the part, as a share of the image's.", Range(0, 1))
        .Param("ratio", &Params::ratio, "Height divided by width of the part.", Range(1e-3, 1e3))
        .Param("value", &Params::value,
               "What covers it, in the units of the image: one number or one per channel.",
               Range(-1e6, 1e6))
        .Param("noise", &Params::noise,
               "Covers it with noise instead, torchvision's value 'random': normal where the image "
               "is normalized, 0 to 255 where it is not.")
        .Cost("A copy of the image.")
        .Example("- random_erasing: {p: 0.25}")
        .AlsoKnownAs("torchvision", {"RandomErasing"})
        .AlsoKnownAs("Albumentations", {"Erasing"})
        .AlsoKnownAs("MindSpore", {"RandomErasing"})
        .NearestTo("MindSpore", {"Erase"})
        .Create<RandomErasing>());

}  // namespace
}  // namespace feedwater::server
