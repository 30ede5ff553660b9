// The four corners of an image and its middle, and those of the mirrored image, as
// torchvision.transforms.v2.TenCrop gives them, stacked into one field.
#include "server/graph/op_schema.h"
#include "server/graph/stacked_crops.h"

namespace feedwater::server {
namespace {

struct Params {
  CropSize size;
  bool vertical_flip = false;
};

class TenCrop : public StackedCrops {
 public:
  explicit TenCrop(const Params& params)
      : StackedCrops(params.size, params.vertical_flip ? Mirror::kUpsideDown : Mirror::kLeftRight) {
  }
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("ten_crop")
        .Summary("Cuts out an image's four corners and its middle, and the mirrored image's, as "
                 "one field.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, normalized already where it shall be."})
        .Output({.field = "", .layouts = {Layout::kPlain}, .dtypes = {}, .doc = kStackedCropsDoc})
        .Required("size", &Params::size,
                  "Height and width of the crops; one number is a square. Smaller images are bad.",
                  Range(1, kMaxSide))
        .Param("vertical_flip", &Params::vertical_flip,
               "Mirrors upside down instead of left to right.")
        .Cost("A copy of ten crops; what stands before it is done for the whole image, once.")
        .Example("- ten_crop: {size: 8}")
        .AlsoKnownAs("torchvision", {"TenCrop"})
        .AlsoKnownAs("MindSpore", {"TenCrop"})
        .Create<TenCrop>());

}  // namespace
}  // namespace feedwater::server
