// Replaces a random box of every sample of a batch by the same box of another one, and mixes the
// labels by the areas (Yun and others, "CutMix", 2019). One box and one permutation of partners are
// drawn for a batch: the box's share of the area is 1 - Beta(alpha, alpha), its middle is anywhere,
// and what sticks out is cut off, as in torchvision.transforms.v2.CutMix. A class number becomes a
// float32 vector with the two classes' weights.
#include <algorithm>
#include <cmath>

#include "server/graph/batch_mixing.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  double alpha = 1.0;
  std::optional<int64_t> num_classes;
};

class Cutmix final : public BoxMixingOp {
 public:
  explicit Cutmix(const Params& params) : BoxMixingOp(params.num_classes), params_(params) {}

 private:
  Rect DrawBox(Size size, Draws& draws) const override {
    const double half = 0.5 * std::sqrt(1.0 - DrawBeta(params_.alpha, draws));
    const int x = static_cast<int>(draws.Below(size.width)),
              y = static_cast<int>(draws.Below(size.height));
    const int half_width = static_cast<int>(half * size.width),
              half_height = static_cast<int>(half * size.height);
    const int left = std::max(0, x - half_width), top = std::max(0, y - half_height);
    return {left, top, std::min(size.width, x + half_width) - left,
            std::min(size.height, y + half_height) - top};
  }

  void Paste(const TensorSpec& spec, Rect box, const std::byte* partner,
             std::byte* to) const override {
    CopyBox(spec, box, partner, to);
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("cutmix")
        .Summary("Replaces a random box of every sample of a batch by another one's, and mixes the "
                 "labels by the areas.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The images."})
        .Input({.field = "label",
                .layouts = {Layout::kPlain},
                .dtypes = {},
                .doc = "Class number, or weights of the classes."})
        .Output(
            {.field = "", .layouts = kImageLayouts, .dtypes = {}, .doc = "The images with boxes."})
        .Output({.field = "",
                 .layouts = {Layout::kPlain},
                 .dtypes = {},
                 .doc = "Weights of the classes."})
        .Randomness(Randomness::kPerBatch)
        .Param("alpha", &Params::alpha,
               "Of the Beta distribution of the area that is kept; 1 is uniform.", Range(1e-3, 1e3))
        .Param("num_classes", &Params::num_classes,
               "Length of the label's vector; by default the dataset's number of classes.",
               Range(1, 1 << 24))
        .Cost("A copy of the box.")
        .Example("- cutmix: {in: [image, label], alpha: 1.0, num_classes: 10}")
        .AlsoKnownAs("torchvision", {"CutMix"})
        .AlsoKnownAs("MindSpore", {"CutMixBatch"})
        .Create<Cutmix>());

}  // namespace
}  // namespace feedwater::server
