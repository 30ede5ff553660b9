// The four corners of an image and its middle, as torchvision.transforms.v2.FiveCrop gives them,
// stacked into one field.
#include "server/graph/op_schema.h"
#include "server/graph/stacked_crops.h"

namespace feedwater::server {
namespace {

struct Params {
  CropSize size;
};

class FiveCrop : public StackedCrops {
 public:
  explicit FiveCrop(const Params& params) : StackedCrops(params.size, Mirror::kNone) {}
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("five_crop")
        .Summary("Cuts out an image's four corners and its middle, as one field.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, normalized already where it shall be."})
        .Output({.field = "", .layouts = {Layout::kPlain}, .dtypes = {}, .doc = kStackedCropsDoc})
        .Required("size", &Params::size,
                  "Height and width of the crops; one number is a square. Smaller images are bad.",
                  Range(1, kMaxSide))
        .Cost("A copy of five crops; what stands before it is done for the whole image, once.")
        .Example("- five_crop: {size: 8}")
        .AlsoKnownAs("torchvision", {"FiveCrop"})
        .AlsoKnownAs("MindSpore", {"FiveCrop"})
        .Create<FiveCrop>());

}  // namespace
}  // namespace feedwater::server
