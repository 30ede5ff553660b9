// Does one operation drawn at random with a strength drawn at random, as torchvision's
// TrivialAugmentWide does on PIL images.
#include "server/graph/augmentations.h"

namespace feedwater::server {
namespace {

struct Params : AugmentParams {
  int64_t num_magnitude_bins = 31;
};

constexpr Magnitudes kMost = {
    .shear = 0.99, .translate = 32, .rotate = 135, .enhance = 0.99, .bits_off = 6};

class TrivialAugmentWide : public AugmentOp {
 public:
  explicit TrivialAugmentWide(const Params& params)
      : AugmentOp(params), bins_(params.num_magnitude_bins) {}

 protected:
  int64_t most() const override { return 1; }

  void Draw(Draws draws, Size image, DrawnAugmentations* drawn) const override {
    const Augmentation kind = AnyAugmentation(&draws);
    const double magnitude = MagnitudeOf(kMost, kind, image, bins_, draws.Below(bins_));
    drawn->push_back(WithSign(kind, magnitude, &draws));
  }

 private:
  const int64_t bins_;
};

const OpRegistrar kRegistrar(
    AugmentSchema(OpSchema<Params>("trivial_augment_wide")
                      .Summary("Does one of 14 operations at random, with a random strength "
                               "(TrivialAugment)."))
        .Param("num_magnitude_bins", &Params::num_magnitude_bins,
               "How many strengths there are, from nothing to the most.", Range(2, 1000000))
        .Cost("That of the operation drawn: a pass or two over the image, or a warp.")
        .Example("- trivial_augment_wide: {interpolation: bilinear}")
        .AlsoKnownAs("torchvision", {"TrivialAugmentWide"})
        .AlsoKnownAs("MindSpore", {"TrivialAugmentWide"})
        .AlsoKnownAs("DALI", {"trivial_augment"})
        .Create<TrivialAugmentWide>());

}  // namespace
}  // namespace feedwater::server
