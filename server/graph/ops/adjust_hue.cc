// Turns the colour circle by a fixed amount, as torchvision's adjust_hue does on PIL images:
// through Pillow's HSV of 8 bits.
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double hue_factor = 0;
};

class AdjustHue : public PointOp {
 public:
  explicit AdjustHue(const Params& params)
      : shift_(static_cast<uint8_t>(static_cast<int>(params.hue_factor * 255))) {}

  void Append(Draws, PointProgram* program) const override { program->ShiftHue(shift_); }

 private:
  const uint8_t shift_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("adjust_hue")
        .Summary("Turns an image's hue by a fixed part of the colour circle.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Required("hue_factor", &Params::hue_factor,
                  "In turns; 0 changes nothing but what 8 bits of HSV lose.", Range(-0.5, 0.5))
        .Cost("Several times as much as a change of saturation: every pixel goes through HSV.")
        .Example("- adjust_hue: {hue_factor: 0.1}")
        .AlsoKnownAs("torchvision", {"adjust_hue"})
        .AlsoKnownAs("MindSpore", {"AdjustHue"})
        .AlsoKnownAs("DALI", {"hue"})
        .Create<AdjustHue>());

}  // namespace
}  // namespace feedwater::server
