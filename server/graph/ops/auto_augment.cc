// Does one of a learned policy's 25 pairs of operations, as torchvision's AutoAugment does on PIL
// images.
#include <array>

#include "server/graph/augmentations.h"

namespace feedwater::server {
namespace {

struct Params : AugmentParams {
  std::string policy = "imagenet";
};

struct Step {
  Augmentation kind;
  double p;     // how often it is done
  int64_t bin;  // of kBins
};
using Policy = std::array<std::array<Step, 2>, 25>;
constexpr int64_t kBins = 10;

constexpr Policy kImagenet = {{
    {{{Augmentation::kPosterize, 0.4, 8}, {Augmentation::kRotate, 0.6, 9}}},
    {{{Augmentation::kSolarize, 0.6, 5}, {Augmentation::kAutoContrast, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.8, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kPosterize, 0.6, 7}, {Augmentation::kPosterize, 0.6, 6}}},
    {{{Augmentation::kEqualize, 0.4, 0}, {Augmentation::kSolarize, 0.2, 4}}},
    {{{Augmentation::kEqualize, 0.4, 0}, {Augmentation::kRotate, 0.8, 8}}},
    {{{Augmentation::kSolarize, 0.6, 3}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kPosterize, 0.8, 5}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kRotate, 0.2, 3}, {Augmentation::kSolarize, 0.6, 8}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kPosterize, 0.4, 6}}},
    {{{Augmentation::kRotate, 0.8, 8}, {Augmentation::kColor, 0.4, 0}}},
    {{{Augmentation::kRotate, 0.4, 9}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.0, 0}, {Augmentation::kEqualize, 0.8, 0}}},
    {{{Augmentation::kInvert, 0.6, 0}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kColor, 0.6, 4}, {Augmentation::kContrast, 1.0, 8}}},
    {{{Augmentation::kRotate, 0.8, 8}, {Augmentation::kColor, 1.0, 2}}},
    {{{Augmentation::kColor, 0.8, 8}, {Augmentation::kSolarize, 0.8, 7}}},
    {{{Augmentation::kSharpness, 0.4, 7}, {Augmentation::kInvert, 0.6, 0}}},
    {{{Augmentation::kShearX, 0.6, 5}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kColor, 0.4, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.4, 0}, {Augmentation::kSolarize, 0.2, 4}}},
    {{{Augmentation::kSolarize, 0.6, 5}, {Augmentation::kAutoContrast, 0.6, 0}}},
    {{{Augmentation::kInvert, 0.6, 0}, {Augmentation::kEqualize, 1.0, 0}}},
    {{{Augmentation::kColor, 0.6, 4}, {Augmentation::kContrast, 1.0, 8}}},
    {{{Augmentation::kEqualize, 0.8, 0}, {Augmentation::kEqualize, 0.6, 0}}},
}};

constexpr Policy kCifar10 = {{
    {{{Augmentation::kInvert, 0.1, 0}, {Augmentation::kContrast, 0.2, 6}}},
    {{{Augmentation::kRotate, 0.7, 2}, {Augmentation::kTranslateX, 0.3, 9}}},
    {{{Augmentation::kSharpness, 0.8, 1}, {Augmentation::kSharpness, 0.9, 3}}},
    {{{Augmentation::kShearY, 0.5, 8}, {Augmentation::kTranslateY, 0.7, 9}}},
    {{{Augmentation::kAutoContrast, 0.5, 0}, {Augmentation::kEqualize, 0.9, 0}}},
    {{{Augmentation::kShearY, 0.2, 7}, {Augmentation::kPosterize, 0.3, 7}}},
    {{{Augmentation::kColor, 0.4, 3}, {Augmentation::kBrightness, 0.6, 7}}},
    {{{Augmentation::kSharpness, 0.3, 9}, {Augmentation::kBrightness, 0.7, 9}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kEqualize, 0.5, 0}}},
    {{{Augmentation::kContrast, 0.6, 7}, {Augmentation::kSharpness, 0.6, 5}}},
    {{{Augmentation::kColor, 0.7, 7}, {Augmentation::kTranslateX, 0.5, 8}}},
    {{{Augmentation::kEqualize, 0.3, 0}, {Augmentation::kAutoContrast, 0.4, 0}}},
    {{{Augmentation::kTranslateY, 0.4, 3}, {Augmentation::kSharpness, 0.2, 6}}},
    {{{Augmentation::kBrightness, 0.9, 6}, {Augmentation::kColor, 0.2, 8}}},
    {{{Augmentation::kSolarize, 0.5, 2}, {Augmentation::kInvert, 0.0, 0}}},
    {{{Augmentation::kEqualize, 0.2, 0}, {Augmentation::kAutoContrast, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.2, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kColor, 0.9, 9}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kAutoContrast, 0.8, 0}, {Augmentation::kSolarize, 0.2, 8}}},
    {{{Augmentation::kBrightness, 0.1, 3}, {Augmentation::kColor, 0.7, 0}}},
    {{{Augmentation::kSolarize, 0.4, 5}, {Augmentation::kAutoContrast, 0.9, 0}}},
    {{{Augmentation::kTranslateY, 0.9, 9}, {Augmentation::kTranslateY, 0.7, 9}}},
    {{{Augmentation::kAutoContrast, 0.9, 0}, {Augmentation::kSolarize, 0.8, 3}}},
    {{{Augmentation::kEqualize, 0.8, 0}, {Augmentation::kInvert, 0.1, 0}}},
    {{{Augmentation::kTranslateY, 0.7, 9}, {Augmentation::kAutoContrast, 0.9, 0}}},
}};

constexpr Policy kSvhn = {{
    {{{Augmentation::kShearX, 0.9, 4}, {Augmentation::kInvert, 0.2, 0}}},
    {{{Augmentation::kShearY, 0.9, 8}, {Augmentation::kInvert, 0.7, 0}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kSolarize, 0.6, 6}}},
    {{{Augmentation::kInvert, 0.9, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kRotate, 0.9, 3}}},
    {{{Augmentation::kShearX, 0.9, 4}, {Augmentation::kAutoContrast, 0.8, 0}}},
    {{{Augmentation::kShearY, 0.9, 8}, {Augmentation::kInvert, 0.4, 0}}},
    {{{Augmentation::kShearY, 0.9, 5}, {Augmentation::kSolarize, 0.2, 6}}},
    {{{Augmentation::kInvert, 0.9, 0}, {Augmentation::kAutoContrast, 0.8, 0}}},
    {{{Augmentation::kEqualize, 0.6, 0}, {Augmentation::kRotate, 0.9, 3}}},
    {{{Augmentation::kShearX, 0.9, 4}, {Augmentation::kSolarize, 0.3, 3}}},
    {{{Augmentation::kShearY, 0.8, 8}, {Augmentation::kInvert, 0.7, 0}}},
    {{{Augmentation::kEqualize, 0.9, 0}, {Augmentation::kTranslateY, 0.6, 6}}},
    {{{Augmentation::kInvert, 0.9, 0}, {Augmentation::kEqualize, 0.6, 0}}},
    {{{Augmentation::kContrast, 0.3, 3}, {Augmentation::kRotate, 0.8, 4}}},
    {{{Augmentation::kInvert, 0.8, 0}, {Augmentation::kTranslateY, 0.0, 2}}},
    {{{Augmentation::kShearY, 0.7, 6}, {Augmentation::kSolarize, 0.4, 8}}},
    {{{Augmentation::kInvert, 0.6, 0}, {Augmentation::kRotate, 0.8, 4}}},
    {{{Augmentation::kShearY, 0.3, 7}, {Augmentation::kTranslateX, 0.9, 3}}},
    {{{Augmentation::kShearX, 0.1, 6}, {Augmentation::kInvert, 0.6, 0}}},
    {{{Augmentation::kSolarize, 0.7, 2}, {Augmentation::kTranslateY, 0.6, 7}}},
    {{{Augmentation::kShearY, 0.8, 4}, {Augmentation::kInvert, 0.8, 0}}},
    {{{Augmentation::kShearX, 0.7, 9}, {Augmentation::kTranslateY, 0.8, 3}}},
    {{{Augmentation::kShearY, 0.8, 5}, {Augmentation::kAutoContrast, 0.7, 0}}},
    {{{Augmentation::kShearX, 0.7, 2}, {Augmentation::kInvert, 0.1, 0}}},
}};

const Policy& PolicyOf(const std::string& name) {
  return name == "svhn" ? kSvhn : name == "cifar10" ? kCifar10 : kImagenet;
}

class AutoAugment : public AugmentOp {
 public:
  explicit AutoAugment(const Params& params)
      : AugmentOp(params), policy_(PolicyOf(params.policy)) {}

 protected:
  int64_t most() const override { return 2; }

  void Draw(Draws draws, Size image, DrawnAugmentations* drawn) const override {
    const auto pair = static_cast<size_t>(draws.Below(static_cast<int64_t>(policy_.size())));
    for (const Step& step : policy_[pair]) {
      const bool is_done = draws.Bernoulli(step.p);
      const double magnitude = MagnitudeOf(kModerate, step.kind, image, kBins, step.bin);
      const DrawnAugmentation one = WithSign(step.kind, magnitude, &draws);
      if (is_done) drawn->push_back(one);
    }
  }

 private:
  const Policy& policy_;
};

const OpRegistrar kRegistrar(
    AugmentSchema(OpSchema<Params>("auto_augment")
                      .Summary("Does one of a learned policy's 25 pairs of operations "
                               "(AutoAugment)."))
        .Param("policy", &Params::policy, "On which dataset the policy was learned.",
               OneOf({"imagenet", "cifar10", "svhn"}))
        .Cost("That of the operations drawn, two at most; those of colours share passes over the "
              "image.")
        .Example("- auto_augment: {policy: imagenet}")
        .AlsoKnownAs("torchvision", {"AutoAugment"})
        .AlsoKnownAs("MindSpore", {"AutoAugment"})
        .AlsoKnownAs("DALI", {"auto_augment"})
        .Create<AutoAugment>());

}  // namespace
}  // namespace feedwater::server
