// Changes saturation by a fixed factor, as torchvision's adjust_saturation does on PIL images
// (ImageEnhance).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double saturation_factor = 1;
};

class AdjustSaturation : public PointOp {
 public:
  explicit AdjustSaturation(const Params& params)
      : factor_(static_cast<float>(params.saturation_factor)) {}

  void Append(Draws, PointProgram* program) const override { program->Saturate(factor_); }

 private:
  const float factor_;
};

const OpRegistrar kRegistrar(OpSchema<Params>("adjust_saturation")
                                 .Summary("Changes an image's saturation by a fixed factor.")
                                 .Input(kColourImage)
                                 .OutputLikeInput()
                                 .Required("saturation_factor", &Params::saturation_factor,
                                           "0 is a grey image, 1 changes nothing.", Range(0, 1000))
                                 .Cost("Some arithmetic for each value.")
                                 .Example("- adjust_saturation: {saturation_factor: 1.5}")
                                 .AlsoKnownAs("torchvision", {"adjust_saturation"})
                                 .AlsoKnownAs("MindSpore", {"AdjustSaturation"})
                                 .AlsoKnownAs("DALI", {"saturation"})
                                 .Create<AdjustSaturation>());

}  // namespace
}  // namespace feedwater::server
