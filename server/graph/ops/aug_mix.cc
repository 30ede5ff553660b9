// Mixes an image with several random chains of operations on it, as torchvision's AugMix does. The
// operations have the arithmetic of PIL images; torchvision takes that of tensors here.
#include <algorithm>
#include <array>
#include <cmath>

#include "server/graph/augmentations.h"
#include "server/graph/batch_mixing.h"
#include "server/imaging/mix_kernels.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMaxWidth = 16;
constexpr int64_t kBins = 10;
constexpr Magnitudes kMost = {.shear = 0.3,
                              .translate_share = 1.0 / 3,
                              .rotate = 30,
                              .enhance = 0.9,
                              .bits_off = 4,
                              .bits = 4};
// In torchvision's order; the last four with all_ops alone.
constexpr std::array<Augmentation, 13> kKinds = {
    Augmentation::kShearX,     Augmentation::kShearY,       Augmentation::kTranslateX,
    Augmentation::kTranslateY, Augmentation::kRotate,       Augmentation::kPosterize,
    Augmentation::kSolarize,   Augmentation::kAutoContrast, Augmentation::kEqualize,
    Augmentation::kBrightness, Augmentation::kColor,        Augmentation::kContrast,
    Augmentation::kSharpness};
constexpr int64_t kPartialKinds = 9;

struct Params : AugmentParams {
  Params() { interpolation = "bilinear"; }
  int64_t severity = 3;
  int64_t mixture_width = 3;
  int64_t chain_depth = -1;
  double alpha = 1;
  bool all_ops = true;
};

class AugMix : public Op {
 public:
  explicit AugMix(const Params& params) : params_(params) {}

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment& environment) const override {
    FW_RETURN_IF_ERROR(CheckFill(inputs, environment, "fill", params_.fill));
    return Specs{inputs[0]};
  }

  OpMemory Memory(absl::Span<const TensorSpec> inputs,
                  const PlanEnvironment& environment) const override {
    bool is_bound = false;  // Plan's spec tells that, too
    return {ScratchFor(MostBytes(inputs[0], LimitsOfInput(inputs, 0, environment), &is_bound)), {}};
  }

  int64_t MostPixels(const TensorSpec&, int64_t pixels, const ImageLimits&) const override {
    return pixels;
  }

  absl::Status Run(Sample& sample, Draws draws) const override {
    const Tensor& input = sample.inputs()[0];
    const auto values = static_cast<int64_t>(input.bytes());
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, input.spec));
    FW_ASSIGN_OR_RETURN(std::byte * scratch,
                        sample.Scratch(static_cast<size_t>(ScratchFor(values))));
    auto* const made = reinterpret_cast<uint8_t*>(scratch);  // by the chains, one behind the other
    uint8_t* const spare = made + params_.mixture_width * values;

    const double own = DrawBeta(params_.alpha, draws);
    const std::array<double, kMaxWidth> shares = DrawShares(&draws);
    std::array<const uint8_t*, kMaxWidth + 1> images = {input.as<const uint8_t>()};
    std::array<float, kMaxWidth + 1> weights = {static_cast<float>(own)};
    const auto width = static_cast<size_t>(params_.mixture_width);
    for (size_t i = 0; i < width; ++i) {
      uint8_t* const image = made + static_cast<int64_t>(i) * values;
      DrawnAugmentations chain;
      DrawChain(ImageSizeOf(input.spec), &draws, &chain);
      FW_RETURN_IF_ERROR(Augment(sample, params_, chain, spare, image));
      images[i + 1] = image;
      weights[i + 1] = static_cast<float>(shares[i] * (1 - own));
      FW_RETURN_IF_ERROR(sample.clock().Check());
    }
    kernels::Mixes().images(images.data(), weights.data(), width + 1, static_cast<size_t>(values),
                            output.as<uint8_t>());
    return absl::OkStatus();
  }

 private:
  int64_t ScratchFor(int64_t values) const { return (params_.mixture_width + 1) * values; }

  // Dirichlet(alpha, ..., alpha).
  std::array<double, kMaxWidth> DrawShares(Draws* draws) const {
    std::array<double, kMaxWidth> shares{};
    const auto width = static_cast<size_t>(params_.mixture_width);
    for (size_t i = 0; i < width; ++i) shares[i] = DrawLogGamma(params_.alpha, *draws);
    const double most = *std::max_element(shares.begin(), shares.begin() + params_.mixture_width);
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += shares[i] = std::exp(shares[i] - most);
    for (double& share : shares) share /= sum;
    return shares;
  }

  void DrawChain(Size image, Draws* draws, DrawnAugmentations* chain) const {
    const int64_t random = 1 + draws->Below(3);
    const int64_t depth = params_.chain_depth > 0 ? params_.chain_depth : random;
    const int64_t kinds = params_.all_ops ? static_cast<int64_t>(kKinds.size()) : kPartialKinds;
    for (int64_t i = 0; i < depth; ++i) {
      const Augmentation kind = kKinds[static_cast<size_t>(draws->Below(kinds))];
      const double magnitude =
          MagnitudeOf(kMost, kind, image, kBins, draws->Below(params_.severity));
      chain->push_back(WithSign(kind, magnitude, draws));
    }
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    AugmentSchema(OpSchema<Params>("aug_mix").Summary(
                      "Mixes an image with random chains of operations on it (AugMix)."))
        .Param("severity", &Params::severity, "How many of ten strengths are drawn from.",
               Range(1, kBins))
        .Param("mixture_width", &Params::mixture_width, "How many chains.", Range(1, kMaxWidth))
        .Param("chain_depth", &Params::chain_depth,
               "Operations of a chain; 1 to 3 at random where it is not positive.",
               Range(-1, static_cast<double>(kMaxAugmentations)))
        .Param("alpha", &Params::alpha,
               "Of the distributions of weights: small, and one chain or the image itself has "
               "nearly all.",
               Range(0.01, 1000))
        .Param("all_ops", &Params::all_ops, "Also brightness, colour, contrast and sharpness.")
        .Cost("That of mixture_width chains, and a pass over the image for each.")
        .Example("- aug_mix: {severity: 3}")
        .AlsoKnownAs("torchvision", {"AugMix"})
        .Create<AugMix>());

}  // namespace
}  // namespace feedwater::server
