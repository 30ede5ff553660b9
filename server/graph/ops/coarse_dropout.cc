// Covers several random boxes of an image with one value, as Albumentations' CoarseDropout does
// with sizes in pixels; with one hole of fixed size it is Cutout. torchvision has no counterpart.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

struct Params {
  OneOrTwo num_holes = {1, 2};
  OneOrTwo hole_height = {8, 16};
  OneOrTwo hole_width = {8, 16};
  FillColor fill;
  double p = 0.5;
};

class CoarseDropout : public Op {
 public:
  explicit CoarseDropout(const Params& params) : params_(params), fill_(FillOf(params.fill)) {}

  static absl::Status Check(const Params& params) {
    FW_RETURN_IF_ERROR(CheckRange("num_holes", params.num_holes));
    FW_RETURN_IF_ERROR(CheckRange("hole_height", params.hole_height));
    return CheckRange("hole_width", params.hole_width);
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override {
    FW_RETURN_IF_ERROR(CheckFill(inputs, environment, "fill", params_.fill));
    return Specs{inputs[0]};
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    const Tensor& input = sample.inputs()[0];
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    std::memcpy(output.data, input.data, input.bytes());
    if (!draws.Bernoulli(params_.p)) return absl::OkStatus();
    const Size size = ImageSizeOf(input.spec);
    for (int64_t holes = Between(params_.num_holes, draws); holes > 0; --holes) {
      FW_RETURN_IF_ERROR(sample.clock().Check());
      const int64_t height = std::min<int64_t>(Between(params_.hole_height, draws), size.height),
                    width = std::min<int64_t>(Between(params_.hole_width, draws), size.width);
      const int64_t y = draws.Below(size.height - height + 1),
                    x = draws.Below(size.width - width + 1);
      FillRect(output,
               {static_cast<int>(x), static_cast<int>(y), static_cast<int>(width),
                static_cast<int>(height)},
               fill_);
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckRange(const char* name, const OneOrTwo& range) {
    if (range.first <= range.second && std::trunc(range.first) == range.first &&
        std::trunc(range.second) == range.second) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'", name,
                     "' must be a whole number, or [low, high] of two with low <= high, "
                     "not [",
                     range.first, ", ", range.second, "]"));
  }

  static int64_t Between(const OneOrTwo& range, Draws& draws) {
    const auto low = static_cast<int64_t>(range.first), high = static_cast<int64_t>(range.second);
    return low + draws.Below(high - low + 1);
  }

  const Params params_;
  const PixelFill fill_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("coarse_dropout")
        .Summary("Covers several random boxes of an image with one value.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The image."})
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("num_holes", &Params::num_holes,
               "How many: a number, or [low, high], both included.", Range(1, 10000))
        .Param("hole_height", &Params::hole_height,
               "Pixels: a number, or [low, high], both included; the image's height at most.",
               Range(1, kMaxSide))
        .Param("hole_width", &Params::hole_width, "The same of the width.", Range(1, kMaxSide))
        .Param("fill", &Params::fill,
               "What covers them, in the units of the image: one number or one per channel.",
               Range(-1e6, 1e6))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Cost("A copy of the image.")
        .Example("- coarse_dropout: {num_holes: 4, hole_height: 8, hole_width: 8}")
        .AlsoKnownAs("Albumentations", {"CoarseDropout"})
        .NearestTo("MindSpore", {"CutOut"})
        .NearestTo("DALI", {"erase"})
        .NearestTo("Albumentations", {"GridDropout"})
        .Create<CoarseDropout>());

}  // namespace
}  // namespace feedwater::server
