// Turns a compressed image (JPEG, PNG, BMP, WebP, PNM or TIFF, told apart by content) into uint8
// HWC pixels with three channels, RGB; grey, palette and CMYK images are converted. Or a PNG of
// labels to one channel: the numbers that are stored in it.
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

struct Params {
  std::string mode = "RGB";
  std::string orientation = "ignore";
  bool fast_scale = false;
};

class Decode : public DecodeOp {
 public:
  explicit Decode(const Params& params)
      : values_(params.mode == "index" ? PixelValues::kIndices : PixelValues::kRgb),
        apply_orientation_(params.orientation == "exif"),
        fast_scale_(params.fast_scale) {}

  PixelValues values() const override { return values_; }
  bool apply_orientation() const override { return apply_orientation_; }
  bool fast_scale() const override { return fast_scale_; }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec>, const PlanEnvironment&) const override {
    return Specs{ImageSpec(DType::kUInt8, Layout::kHWC, -1, -1, ChannelsOf(values_))};
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    const absl::Span<const std::byte> encoded(input.data, input.bytes());
    FW_ASSIGN_OR_RETURN(
        const ImageInfo info,
        ReadImageInfo(encoded, apply_orientation_, sample.limits(), sample.images(), values_));
    FW_ASSIGN_OR_RETURN(Tensor output,
                        sample.Output(0, ImageSpec(DType::kUInt8, Layout::kHWC, info.size.height,
                                                   info.size.width, ChannelsOf(values_))));
    return DecodeInto(encoded, apply_orientation_, sample.limits(),
                      ImageTransform(info.size).geometry(), PlainPixels(), output.data,
                      sample.images(), values_);
  }

 private:
  const PixelValues values_;
  const bool apply_orientation_;
  const bool fast_scale_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("decode")
        .Summary(
            "Decodes a compressed image to uint8 HWC RGB pixels: JPEG, PNG, WebP, TIFF, BMP or "
            "PNM, told apart by content. Of 16 bits the high byte is kept, as OpenCV does it "
            "(Pillow's convert clips 16 bit gray: nearly all of it is white); alpha is dropped; of "
            "an animated WebP the first frame is taken. GIF is not read, as torchvision's "
            "ImageFolder does not.")
        .Input({.field = "data",
                .layouts = {Layout::kEncoded},
                .dtypes = {},
                .doc = "The bytes of an image file."})
        .Output({.field = "image",
                 .layouts = {Layout::kHWC},
                 .dtypes = {DType::kUInt8},
                 .doc = "The pixels: RGB, or one channel of indices."})
        .Param("mode", &Params::mode,
               "RGB: three channels; images of other kinds are converted. index: one channel, the "
               "number that a PNG of labels holds for each pixel, such as a mask of Pascal VOC: of "
               "a palette PNG the place in the palette, of a gray PNG of 8 bits or less the value, "
               "which is not spread over 8 bits. Any other image is a bad sample. Move such a mask "
               "together with its image (`in: [image, mask]`), or resize it with `interpolation: "
               "nearest`: a number between two labels is a third one.",
               OneOf({"RGB", "index"}))
        .Param("orientation", &Params::orientation,
               "exif turns the image upright, as its EXIF data says and viewers show it. ignore "
               "leaves the pixels as they are stored, as loaders do that open with Pillow and "
               "convert: torchvision's ImageFolder, and OpenCV with IMREAD_IGNORE_ORIENTATION. "
               "(OpenCV turns by default; Pillow does by ImageOps.exif_transpose.) Nothing else "
               "than the order of pixels differs, but a model that learned from one kind sees "
               "some phone photos sideways with the other.",
               OneOf({"ignore", "exif"}))
        .LaterParam(
            "fast_scale", &Params::fast_scale,
            "Decodes JPEGs at 1/2, 1/4 or 1/8 of their size where the crop is at least that many "
            "times as high and as wide as what the resize behind it makes of it, and resizes the "
            "rest of the way. Large photos take 0.6 to 0.9 of the time from their files, 0.3 to "
            "0.7 from a cache of coefficients. The pixels are not those of a full decode: they "
            "differ by one to two steps of 255 in the mean and by some tens at sharp edges. Takes "
            "effect only where decode is fused with a bilinear or bicubic resize.")
        .Cost("Most of a training pipeline's CPU time. Only the part is decoded that the crops "
              "behind it leave, those of several views too.")
        .Example("- decode: {in: data, out: image}")
        .AlsoKnownAs("torchvision", {"decode_image", "decode_jpeg", "decode_png"})
        .AlsoKnownAs("MindSpore", {"Decode"})
        .NearestTo("DALI", {"decoders.image", "image_decoder"})
        .Create<Decode>());

}  // namespace
}  // namespace feedwater::server
