// Raises each value to a power, as torchvision's adjust_gamma does on PIL images.
#include <algorithm>
#include <cmath>

#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double gamma = 1, gain = 1;
};

class AdjustGamma : public PointOp {
 public:
  explicit AdjustGamma(const Params& params) {
    for (int v = 0; v < 256; ++v) {
      const double value = (255 + 1 - 1e-3) * params.gain * std::pow(v / 255.0, params.gamma);
      table_[v] = static_cast<uint8_t>(std::min(value, 255.0));
    }
  }

  void Append(Draws, PointProgram* program) const override { program->LookUp(table_); }

 private:
  ByteTable table_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("adjust_gamma")
        .Summary("Gamma correction: gain * value ^ gamma, of values in 0..1.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Required("gamma", &Params::gamma, "Above 1 makes shadows darker, below 1 lighter.",
                  Range(0, 100))
        .Param("gain", &Params::gain, "Factor of the result.", Range(0, 1000))
        .Cost("A table look-up or less for each value.")
        .Example("- adjust_gamma: {gamma: 0.7}")
        .AlsoKnownAs("torchvision", {"adjust_gamma"})
        .AlsoKnownAs("MindSpore", {"AdjustGamma"})
        .NearestTo("Albumentations", {"RandomGamma"})
        .Create<AdjustGamma>());

}  // namespace
}  // namespace feedwater::server
