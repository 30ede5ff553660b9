// Stretches the values of each channel over all of 0..255 with probability p, as torchvision's
// RandomAutocontrast does on PIL images (ImageOps.autocontrast).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double p = 0.5;
};

class RandomAutocontrast : public RandomPointOp {
 public:
  explicit RandomAutocontrast(const Params& params) : RandomPointOp(params.p) {}

  bool needs_image() const override { return true; }

 private:
  void Change(PointProgram* program) const override { program->AutoContrast(); }
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_autocontrast")
        .Summary("Stretches each channel to the whole range of values, with a given probability.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("p", &Params::p, "Probability of the change.", Range(0, 1))
        .Cost("Two passes over the image: it is looked at as a whole first.")
        .Example("- random_autocontrast: {p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomAutocontrast"})
        .AlsoKnownAs("Albumentations", {"AutoContrast"})
        .AlsoKnownAs("MindSpore", {"RandomAutoContrast"})
        .NearestTo("MindSpore", {"AutoContrast"})
        .Create<RandomAutocontrast>());

}  // namespace
}  // namespace feedwater::server
