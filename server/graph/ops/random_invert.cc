// Inverts the colours of an image with probability p, as torchvision's RandomInvert does on PIL
// images (ImageOps.invert).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double p = 0.5;
};

class RandomInvert : public RandomPointOp {
 public:
  explicit RandomInvert(const Params& params) : RandomPointOp(params.p) {}

 private:
  void Change(PointProgram* program) const override { program->Change({.flip = 255}); }
};

const OpRegistrar kRegistrar(OpSchema<Params>("random_invert")
                                 .Summary("Inverts an image's colours with a given probability.")
                                 .Input(kColourImage)
                                 .OutputLikeInput()
                                 .Randomness(Randomness::kPerSample)
                                 .Param("p", &Params::p, "Probability of the change.", Range(0, 1))
                                 .Cost("A table look-up or less for each value.")
                                 .Example("- random_invert: {p: 0.5}")
                                 .AlsoKnownAs("torchvision", {"RandomInvert"})
                                 .AlsoKnownAs("Albumentations", {"InvertImg"})
                                 .AlsoKnownAs("MindSpore", {"RandomInvert"})
                                 .NearestTo("MindSpore", {"Invert"})
                                 .Create<RandomInvert>());

}  // namespace
}  // namespace feedwater::server
