// Puts an image at a random place of a larger canvas, with a given probability, as
// torchvision.transforms.v2.RandomZoomOut does.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  Interval side_range = {1, 4};
  double p = 0.5;
  FillColor fill;
  double mask_fill = 0;
};

class RandomZoomOut : public GeometryOp {
 public:
  explicit RandomZoomOut(Params params)
      : GeometryOp(params),
        params_(std::move(params)),
        fill_(FillOf(params_.fill)),
        mask_fill_(FillOf({{params_.mask_fill}})) {}

  bool pads() const override { return true; }
  const FillColor* fill() const override { return &params_.fill; }
  const PixelFill* mask_fill() const override { return &mask_fill_; }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize) const override { return PlannedSize{}; }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits& limits) const override {
    const double side = params_.side_range.high;
    const double canvas = std::ceil(static_cast<double>(pixels) * side * side) + 1;
    // Where nothing is done, it is what it was.
    return std::max(pixels,
                    static_cast<int64_t>(std::min(canvas, static_cast<double>(limits.max_pixels))));
  }

  absl::Status Compose(size_t, Draws draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    if (!draws.Bernoulli(params_.p)) return absl::OkStatus();
    const int width = transform->size().width, height = transform->size().height;
    const double side = draws.Uniform(params_.side_range.low, params_.side_range.high);
    const auto canvas_width = static_cast<int64_t>(width * side),
               canvas_height = static_cast<int64_t>(height * side);
    FW_RETURN_IF_ERROR(CheckPixels(canvas_height, canvas_width, limits));
    const auto missing_x = static_cast<int>(canvas_width) - width,
               missing_y = static_cast<int>(canvas_height) - height;
    const int left = static_cast<int>(missing_x * draws.Uniform()),
              top = static_cast<int>(missing_y * draws.Uniform());
    transform->Pad(left, top, missing_x - left, missing_y - top, fill_);
    return absl::OkStatus();
  }

 private:
  const Params params_;
  const PixelFill fill_, mask_fill_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_zoom_out")
        .Summary("Puts an image at a random place of a larger canvas, with a given probability.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it."})
        .OutputLikeInput()
        .Joint()
        .Randomness(Randomness::kPerSample)
        .Param("side_range", &Params::side_range,
               "The canvas's sides, in sides of the image, drawn from this range.", Range(1, 100))
        .Param("p", &Params::p, "Probability of doing so.", Range(0, 1))
        .Param("fill", &Params::fill,
               "Value of the rest, in the units of the image: one number or one per channel.",
               Range(-1e6, 1e6))
        .Param("mask_fill", &Params::mask_fill, "The same of masks.", Range(-1e9, 1e9))
        .Cost("A copy to the larger canvas.")
        .Example("- random_zoom_out: {side_range: [1, 3], fill: [124, 116, 104]}")
        .AlsoKnownAs("torchvision", {"RandomZoomOut"})
        .NearestTo("DALI", {"paste", "bbox_paste"})
        .Create<RandomZoomOut>());

}  // namespace
}  // namespace feedwater::server
