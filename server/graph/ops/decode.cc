// Turns a compressed image (JPEG, PNG, BMP, WebP and what else OpenCV reads, told apart by content)
// into uint8 HWC pixels with three channels, RGB; grey, palette and CMYK images are converted.
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string mode = "RGB";
  std::string orientation = "ignore";
};

class Decode : public DecodeOp {
 public:
  explicit Decode(Params params) : apply_orientation_(params.orientation == "apply") {}

  bool apply_orientation() const override { return apply_orientation_; }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec>, const PlanEnvironment&) const override {
    return Specs{ImageSpec(DType::kUInt8, Layout::kHWC, -1, -1, 3)};
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    const absl::Span<const std::byte> encoded(input.data, input.bytes());
    FW_ASSIGN_OR_RETURN(const ImageInfo info, ReadImageInfo(encoded, apply_orientation_,
                                                            sample.limits(), sample.images()));
    FW_ASSIGN_OR_RETURN(Tensor output,
                        sample.Output(0, ImageSpec(DType::kUInt8, Layout::kHWC, info.size.height,
                                                   info.size.width, 3)));
    return DecodeInto(encoded, apply_orientation_, sample.limits(),
                      ImageTransform(info.size).geometry(), PlainPixels(), output.data,
                      sample.images());
  }

 private:
  const bool apply_orientation_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("decode")
        .Summary("Decodes a compressed image to uint8 HWC RGB pixels.")
        .Input({.field = "data",
                .layouts = {Layout::kEncoded},
                .dtypes = {},
                .doc = "The bytes of an image file."})
        .Output({.field = "image",
                 .layouts = {Layout::kHWC},
                 .dtypes = {DType::kUInt8},
                 .doc = "The pixels, RGB."})
        .Param("mode", &Params::mode, "Colours of the result; images of other kinds are converted.",
               OneOf({"RGB"}))
        .Param("orientation", &Params::orientation,
               "Whether the EXIF orientation is applied. Loaders built on Pillow's convert, such "
               "as torchvision's, ignore it.",
               OneOf({"ignore", "apply"}))
        .Cost("Most of a training pipeline's CPU time. Where it is fused, only the part is decoded "
              "that the crops leave.")
        .Example("- decode: {in: data, out: image}")
        .Create<Decode>());

}  // namespace
}  // namespace feedwater::server
