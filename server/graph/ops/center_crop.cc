// Cuts a window out of the middle of an image, as torchvision.transforms.CenterCrop does. An image
// smaller than the window is padded with zeros around it.
#include <cmath>

#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  CropSize size;
};

class CenterCrop : public GeometryOp {
 public:
  explicit CenterCrop(const Params& params)
      : GeometryOp(params),
        height_(static_cast<int>(params.size.height)),
        width_(static_cast<int>(params.size.width)) {}

  bool pads() const override { return true; }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize) const override {
    return PlannedSize{height_, width_};
  }

  absl::Status Compose(size_t, Draws, const ImageLimits&,
                       ImageTransform* transform) const override {
    const int missing_x = std::max(0, width_ - transform->size().width);
    const int missing_y = std::max(0, height_ - transform->size().height);
    if (missing_x > 0 || missing_y > 0) {
      transform->Pad(missing_x / 2, missing_y / 2, (missing_x + 1) / 2, (missing_y + 1) / 2,
                     PixelFill{});
    }
    // Half to even, as Python's round().
    const int left = static_cast<int>(std::nearbyint((transform->size().width - width_) / 2.0));
    const int top = static_cast<int>(std::nearbyint((transform->size().height - height_) / 2.0));
    transform->Crop({left, top, width_, height_});
    return absl::OkStatus();
  }

 private:
  const int height_, width_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("center_crop")
        .Summary("Cuts a window out of the middle; smaller images are padded with zeros.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it."})
        .OutputLikeInput()
        .Joint()
        .Required("size", &Params::size, "Height and width of the window; one number is a square.",
                  Range(1, kMaxSide))
        .Cost("A copy when it runs alone, nothing when it is fused.")
        .Example("- center_crop: {size: 224}")
        .AlsoKnownAs("torchvision", {"CenterCrop"})
        .AlsoKnownAs("Albumentations", {"CenterCrop"})
        .AlsoKnownAs("MindSpore", {"CenterCrop"})
        .NearestTo("DALI", {"crop"})
        .NearestTo("Albumentations", {"Crop"})
        .Create<CenterCrop>());

}  // namespace
}  // namespace feedwater::server
