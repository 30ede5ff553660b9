// Inverts the values that are not below a threshold with probability p, as torchvision's
// RandomSolarize does on PIL images (ImageOps.solarize).
#include <cmath>

#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double threshold = 128;
  double p = 0.5;
};

class RandomSolarize : public RandomPointOp {
 public:
  explicit RandomSolarize(const Params& params)
      : RandomPointOp(params.p), threshold_(static_cast<int>(std::ceil(params.threshold))) {}

 private:
  void Change(PointProgram* program) const override {
    if (threshold_ <= 255)
      program->Change({.threshold = static_cast<uint8_t>(threshold_), .flip = 255});
  }

  const int threshold_;  // the first value that is inverted; 256: none is
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("random_solarize")
        .Summary("Inverts the values from a threshold on, with a given probability.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Randomness(Randomness::kPerSample)
        .Required("threshold", &Params::threshold,
                  "Values from this one on are inverted: 0 to 255, as the image's bytes; "
                  "torchvision's 0.5 of "
                  "floats is 128.",
                  Range(0, 256))
        .Param("p", &Params::p, "Probability of the change.", Range(0, 1))
        .Cost("A table look-up or less for each value.")
        .Example("- random_solarize: {threshold: 128, p: 0.5}")
        .AlsoKnownAs("torchvision", {"RandomSolarize"})
        .AlsoKnownAs("Albumentations", {"Solarize"})
        .AlsoKnownAs("MindSpore", {"RandomSolarize"})
        .NearestTo("MindSpore", {"Solarize"})
        .Create<RandomSolarize>());

}  // namespace
}  // namespace feedwater::server
