// Cuts a window out of an image at a random place, all places alike likely, as
// torchvision.transforms.RandomCrop does. The image can be padded before, which is the usual
// augmentation of CIFAR (padding: 4). An image that is smaller than the window is an error of the
// sample unless pad_if_needed.
#include "absl/strings/str_cat.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  CropSize size;
  Padding padding;
  bool pad_if_needed = false;
  FillColor fill;
  double mask_fill = 0;
};

class RandomCrop : public GeometryOp {
 public:
  explicit RandomCrop(const Params& params)
      : GeometryOp(params),
        height_(static_cast<int>(params.size.height)),
        width_(static_cast<int>(params.size.width)),
        padding_(params.padding),
        pad_if_needed_(params.pad_if_needed),
        color_(params.fill),
        fill_(FillOf(color_)),
        mask_fill_(FillOf({{params.mask_fill}})) {}

  bool pads() const override { return pad_if_needed_ || HasPadding(); }
  const FillColor* fill() const override { return &color_; }
  const PixelFill* mask_fill() const override { return &mask_fill_; }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const override {
    if (input.height >= 0 && input.width >= 0 && !pad_if_needed_) {
      FW_RETURN_IF_ERROR(CheckFits(input.height + padding_.top + padding_.bottom,
                                   input.width + padding_.left + padding_.right));
    }
    return PlannedSize{height_, width_};
  }

  absl::Status Compose(size_t, Draws draws, const ImageLimits&,
                       ImageTransform* transform) const override {
    // torchvision pads by `padding`, then on both sides by what is still missing; together that is
    // one padding.
    int left = static_cast<int>(padding_.left), right = static_cast<int>(padding_.right);
    int top = static_cast<int>(padding_.top), bottom = static_cast<int>(padding_.bottom);
    if (pad_if_needed_) {
      const int missing_x = std::max(0, width_ - (transform->size().width + left + right));
      const int missing_y = std::max(0, height_ - (transform->size().height + top + bottom));
      left += missing_x;
      right += missing_x;
      top += missing_y;
      bottom += missing_y;
    }
    if (left + right + top + bottom > 0) transform->Pad(left, top, right, bottom, fill_);
    const Size size = transform->size();
    FW_RETURN_IF_ERROR(CheckFits(size.height, size.width));
    const int y = static_cast<int>(draws.Below(size.height - height_ + 1));
    const int x = static_cast<int>(draws.Below(size.width - width_ + 1));
    transform->Crop({x, y, width_, height_});
    return absl::OkStatus();
  }

 private:
  bool HasPadding() const {
    return padding_.left + padding_.top + padding_.right + padding_.bottom > 0;
  }

  absl::Status CheckFits(int64_t height, int64_t width) const {
    if (height >= height_ && width >= width_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the image of ", width, "x", height,
                                                   " pixels is smaller than the window of ", width_,
                                                   "x", height_, "; pad_if_needed: true pads it"));
  }

  const int height_, width_;
  const Padding padding_;
  const bool pad_if_needed_;
  const FillColor color_;
  const PixelFill fill_, mask_fill_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_crop")
        .Summary("Cuts a window out at a random place, after padding where asked.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it."})
        .OutputLikeInput()
        .Joint()
        .Randomness(Randomness::kPerSample)
        .Required("size", &Params::size, "Height and width of the window; one number is a square.",
                  Range(1, kMaxSide))
        .Param("padding", &Params::padding,
               "Pixels added around the image first: one number, [x, y] or [left, top, right, "
               "bottom].",
               Range(0, kMaxSide))
        .Param("pad_if_needed", &Params::pad_if_needed,
               "Pads a smaller image on both sides until the window fits, instead of refusing it.")
        .Param("fill", &Params::fill,
               "Value of padded pixels, in the units of the image: one number or one per channel.",
               Range(-1e6, 1e6))
        .LaterParam("mask_fill", &Params::mask_fill, "The same of masks.", Range(-1e9, 1e9))
        .Cost("A copy when it runs alone, next to nothing when it is fused.")
        .Example("- random_crop: {size: 32, padding: 4}")
        .AlsoKnownAs("torchvision", {"RandomCrop"})
        .AlsoKnownAs("Albumentations", {"RandomCrop"})
        .AlsoKnownAs("MindSpore", {"RandomCrop"})
        .Create<RandomCrop>());

}  // namespace
}  // namespace feedwater::server
