// Keeps the highest bits of each value with probability p, as torchvision's RandomPosterize does
// (ImageOps.posterize).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  int64_t bits = 8;
  double p = 0.5;
};

class RandomPosterize : public RandomPointOp {
 public:
  explicit RandomPosterize(const Params& params)
      : RandomPointOp(params.p), keep_(static_cast<uint8_t>(0xFF << (8 - params.bits))) {}

 private:
  void Change(PointProgram* program) const override { program->Change({.keep = keep_}); }

  const uint8_t keep_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_posterize")
        .Summary("Keeps only the highest bits of each value, with a given probability.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Required("bits", &Params::bits, "How many bits are kept.", Range(0, 8))
        .Param("p", &Params::p, "Probability of the change.", Range(0, 1))
        .Cost("A table look-up or less for each value.")
        .Example("- random_posterize: {bits: 4, p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomPosterize"})
        .AlsoKnownAs("Albumentations", {"Posterize"})
        .AlsoKnownAs("MindSpore", {"RandomPosterize"})
        .NearestTo("MindSpore", {"Posterize"})
        .Create<RandomPosterize>());

}  // namespace
}  // namespace feedwater::server
