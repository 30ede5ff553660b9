// Mirrors an image left to right with probability p, as torchvision.transforms.RandomHorizontalFlip
// does.
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params : BoxRules {
  double p = 0.5;
};

class RandomHorizontalFlip : public GeometryOp {
 public:
  explicit RandomHorizontalFlip(const Params& params) : GeometryOp(params), p_(params.p) {}

  bool flips() const override { return true; }

  absl::StatusOr<PlannedSize> PlanSize(PlannedSize input) const override { return input; }

  absl::Status Compose(size_t, Draws draws, const ImageLimits&,
                       ImageTransform* transform) const override {
    if (draws.Bernoulli(p_)) transform->FlipHorizontal();
    return absl::OkStatus();
  }

 private:
  const double p_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_horizontal_flip")
        .Summary("Mirrors an image left to right with a given probability.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {},
                .doc = "The image, and what moves with it."})
        .OutputLikeInput()
        .Joint()
        .Randomness(Randomness::kPerSample)
        .Param("p", &Params::p, "Probability of mirroring.", Range(0, 1))
        .Cost("A copy when it runs alone, nothing when it is fused.")
        .Example("- random_horizontal_flip: {p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomHorizontalFlip", "hflip"})
        .AlsoKnownAs("Albumentations", {"HorizontalFlip"})
        .AlsoKnownAs("MindSpore", {"RandomHorizontalFlip"})
        .NearestTo("MindSpore", {"HorizontalFlip"})
        .NearestTo("DALI", {"flip"})
        .NearestTo("Albumentations", {"D4", "Transpose", "RandomRotate90"})
        .Create<RandomHorizontalFlip>());

}  // namespace
}  // namespace feedwater::server
