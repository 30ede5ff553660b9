// Adds pixels around an image, as torchvision.transforms.Pad does with padding_mode constant.
#include "server/graph/geometry_op.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  Padding padding;
  FillColor fill;
  double mask_fill = 0;
};

class Pad : public GeometryOp {
 public:
  explicit Pad(const Params& params)
      : GeometryOp(params),
        padding_(params.padding),
        color_(params.fill),
        fill_(FillOf(color_)),
        mask_fill_(FillOf({{params.mask_fill}})) {}

  bool pads() const override { return true; }
  const FillColor* fill() const override { return &color_; }
  const PixelFill* mask_fill() const override { return &mask_fill_; }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const override {
    PlannedSize size = input;
    if (input.height >= 0) size.height += padding_.top + padding_.bottom;
    if (input.width >= 0) size.width += padding_.left + padding_.right;
    return size;
  }

  absl::Status Compose(size_t, Draws, const ImageLimits& limits,
                       ImageTransform* transform) const override {
    const Size size = transform->size();
    FW_RETURN_IF_ERROR(CheckPixels(size.height + padding_.top + padding_.bottom,
                                   size.width + padding_.left + padding_.right, limits));
    transform->Pad(static_cast<int>(padding_.left), static_cast<int>(padding_.top),
                   static_cast<int>(padding_.right), static_cast<int>(padding_.bottom), fill_);
    return absl::OkStatus();
  }

 private:
  const Padding padding_;
  const FillColor color_;
  const PixelFill fill_, mask_fill_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("pad")
        .Summary("Adds pixels of one colour around an image.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it."})
        .OutputLikeInput()
        .Joint()
        .Required("padding", &Params::padding,
                  "Pixels added: one number, [x, y] or [left, top, right, bottom].",
                  Range(0, kMaxSide))
        .Param("fill", &Params::fill,
               "Their value, in the units of the image: one number or one per channel.",
               Range(-1e6, 1e6))
        .Param("mask_fill", &Params::mask_fill, "The same of masks.", Range(-1e9, 1e9))
        .Cost("A copy.")
        .Example("- pad: {padding: 4}")
        .AlsoKnownAs("torchvision", {"Pad"})
        .AlsoKnownAs("Albumentations", {"Pad"})
        .AlsoKnownAs("MindSpore", {"Pad"})
        .NearestTo("Albumentations", {"PadIfNeeded"})
        .NearestTo("MindSpore", {"PadToSize"})
        .NearestTo("DALI", {"pad"})
        .Create<Pad>());

}  // namespace
}  // namespace feedwater::server
