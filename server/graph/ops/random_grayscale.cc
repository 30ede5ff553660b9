// Makes an image grey with probability p, as torchvision's RandomGrayscale does on PIL images:
// three channels stay three, all equal (ITU-R 601, Pillow's "L").
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double p = 0.1;
};

class RandomGrayscale : public RandomPointOp {
 public:
  explicit RandomGrayscale(const Params& params) : RandomPointOp(params.p) {}

 private:
  void Change(PointProgram* program) const override { program->Grey(program->channels()); }
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_grayscale")
        .Summary("Makes an image grey with a given probability; the number of channels stays.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Param("p", &Params::p, "Probability of making it grey.", Range(0, 1))
        .Cost("Little more than a copy.")
        .Example("- random_grayscale: {p: 0.1}")
        .AlsoKnownAs("torchvision", {"RandomGrayscale"})
        .AlsoKnownAs("MindSpore", {"RandomGrayscale"})
        .Create<RandomGrayscale>());

}  // namespace
}  // namespace feedwater::server
