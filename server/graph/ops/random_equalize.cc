// Makes all values of each channel alike frequent with probability p, as torchvision's
// RandomEqualize does on PIL images (ImageOps.equalize).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double p = 0.5;
};

class RandomEqualize : public RandomPointOp {
 public:
  explicit RandomEqualize(const Params& params) : RandomPointOp(params.p) {}

  bool needs_image() const override { return true; }

 private:
  void Change(PointProgram* program) const override { program->Equalize(); }
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_equalize")
        .Summary("Equalizes the histogram of each channel with a given probability.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("p", &Params::p, "Probability of the change.", Range(0, 1))
        .Cost("Two passes over the image: it is looked at as a whole first.")
        .Example("- random_equalize: {p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomEqualize"})
        .AlsoKnownAs("Albumentations", {"Equalize"})
        .AlsoKnownAs("MindSpore", {"RandomEqualize"})
        .NearestTo("MindSpore", {"Equalize"})
        .NearestTo("DALI", {"equalize"})
        .Create<RandomEqualize>());

}  // namespace
}  // namespace feedwater::server
