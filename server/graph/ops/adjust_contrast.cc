// Changes contrast by a fixed factor, as torchvision's adjust_contrast does on PIL images
// (ImageEnhance).
#include "server/graph/op_schema.h"
#include "server/graph/point_op.h"

namespace feedwater::server {
namespace {

struct Params {
  double contrast_factor = 1;
};

class AdjustContrast : public PointOp {
 public:
  explicit AdjustContrast(const Params& params)
      : factor_(static_cast<float>(params.contrast_factor)) {}

  bool needs_image() const override { return true; }
  void Append(Draws, PointProgram* program) const override { program->Contrast(factor_); }

 private:
  const float factor_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("adjust_contrast")
        .Summary("Changes an image's contrast by a fixed factor.")
        .Input(kColourImage)
        .OutputLikeInput()
        .Required("contrast_factor", &Params::contrast_factor,
                  "0 is grey of the mean brightness, 1 changes nothing.", Range(0, 1000))
        .Cost("Two passes over the image: it is looked at as a whole first.")
        .Example("- adjust_contrast: {contrast_factor: 1.5}")
        .AlsoKnownAs("torchvision", {"adjust_contrast"})
        .AlsoKnownAs("MindSpore", {"AdjustContrast"})
        .NearestTo("DALI", {"contrast"})
        .Create<AdjustContrast>());

}  // namespace
}  // namespace feedwater::server
