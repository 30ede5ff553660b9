// Changes brightness by a fixed factor, as torchvision's adjust_brightness does on PIL images
// (ImageEnhance).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double brightness_factor = 1;
};

class AdjustBrightness : public PointOp {
 public:
  explicit AdjustBrightness(const Params& params)
      : factor_(static_cast<float>(params.brightness_factor)) {}

  void Append(Draws, PointProgram* program) const override { program->Blend(0, factor_); }

 private:
  const float factor_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("adjust_brightness")
                                 .Summary("Changes an image's brightness by a fixed factor.")
                                 .Input(kColourImage)
                                 .OutputLikeInput()
                                 .Required("brightness_factor", &Params::brightness_factor,
                                           "0 is black, 1 changes nothing.", Range(0, 1000))
                                 .Cost("A table look-up or less for each value.")
                                 .Example("- adjust_brightness: {brightness_factor: 1.5}")
                                 .AlsoKnownAs("torchvision", {"adjust_brightness"})
                                 .AlsoKnownAs("MindSpore", {"AdjustBrightness"})
                                 .AlsoKnownAs("DALI", {"brightness"})
                                 .Create<AdjustBrightness>());

}  // namespace
}  // namespace feedwater::server
