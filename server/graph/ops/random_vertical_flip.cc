// Mirrors an image top to bottom with probability p, as torchvision.transforms.RandomVerticalFlip
// does.
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  double p = 0.5;
};

class RandomVerticalFlip : public GeometryOp {
 public:
  explicit RandomVerticalFlip(const Params& params) : GeometryOp(params), p_(params.p) {}

  bool flips() const override { return true; }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const override { return input; }

  absl::Status Compose(size_t, Draws draws, const ImageLimits&,
                       ImageTransform* transform) const override {
    if (draws.Bernoulli(p_)) transform->FlipVertical();
    return absl::OkStatus();
  }

 private:
  const double p_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_vertical_flip")
        .Summary("Mirrors an image top to bottom with a given probability.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it."})
        .OutputLikeInput()
        .Joint()
        .Randomness(Randomness::kPerSample)
        .Param("p", &Params::p, "Probability of mirroring.", Range(0, 1))
        .Cost("A copy when it runs alone, nothing when it is fused.")
        .Example("- random_vertical_flip: {p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomVerticalFlip", "vflip"})
        .AlsoKnownAs("Albumentations", {"VerticalFlip"})
        .AlsoKnownAs("MindSpore", {"RandomVerticalFlip"})
        .NearestTo("MindSpore", {"VerticalFlip"})
        .Create<RandomVerticalFlip>());

}  // namespace
}  // namespace feedwater::server
