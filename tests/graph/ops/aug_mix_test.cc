// aug_mix: the weighted sum of its chains, whose operations are those of their ops.
#include <gmock/gmock.h>

#include "server/graph/batch_mixing.h"
#include "tests/graph/augment_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Size kSize = {53, 41};
constexpr Magnitudes kMost = {.shear = 0.3,
                              .translate_share = 1.0 / 3,
                              .rotate = 30,
                              .enhance = 0.9,
                              .bits_off = 4,
                              .bits = 4};
// torchvision's _PARTIAL_AUGMENTATION_SPACE, and what all_ops adds.
const std::vector<Augmentation> kKinds = {
    Augmentation::kShearX,     Augmentation::kShearY,       Augmentation::kTranslateX,
    Augmentation::kTranslateY, Augmentation::kRotate,       Augmentation::kPosterize,
    Augmentation::kSolarize,   Augmentation::kAutoContrast, Augmentation::kEqualize,
    Augmentation::kBrightness, Augmentation::kColor,        Augmentation::kContrast,
    Augmentation::kSharpness};

void ExpectThatItMixes(bool all_ops, int severity, int width, int depth, double alpha,
                       int channels) {
  const Bytes pixels = PatternPixels(kSize.height, kSize.width, channels);
  const std::string op = absl::StrFormat(
      "- aug_mix: {all_ops: %s, severity: %d, mixture_width: %d, chain_depth: %d, "
      "alpha: %g}",
      all_ops ? "true" : "false", severity, width, depth, alpha);
  for (int64_t id = 0; id < 60; ++id) {
    Draws draws = FirstDraws(id);
    const double own = DrawBeta(alpha, draws);
    std::vector<double> shares;
    double sum = 0;
    for (int i = 0; i < width; ++i)
      sum += shares.emplace_back(std::exp(DrawLogGamma(alpha, draws)));
    std::vector<double> mix(pixels.begin(), pixels.end());
    for (double& value : mix) value *= own;
    for (const double share : shares) {
      Bytes chain = pixels;
      const auto random = static_cast<int>(1 + draws.Below(3));
      for (int i = 0; i < (depth > 0 ? depth : random); ++i) {
        const Augmentation kind = kKinds[static_cast<size_t>(draws.Below(all_ops ? 13 : 9))];
        const double most = MagnitudeOf(kMost, kind, kSize, 10, draws.Below(severity));
        const bool negative = draws.Uniform() < 0.5;
        chain = Augmented({kind, negative && IsSigned(kind) ? -most : most}, chain, kSize, channels,
                          /*bilinear=*/true);
      }
      for (size_t k = 0; k < mix.size(); ++k) mix[k] += share / sum * (1 - own) * chain[k];
    }
    const Bytes out = RunOnPixels(op, kSize.height, kSize.width, channels, pixels, id);
    ASSERT_EQ(out.size(), mix.size());
    // Float32 and a cut: one whole number below where the sum is one but for rounding.
    for (size_t k = 0; k < mix.size(); ++k) ASSERT_NEAR(out[k], mix[k] - 0.5, 0.501) << op << id;
  }
}

TEST(AugMix, IsTheWeightedSumOfItsChains) { ExpectThatItMixes(true, 3, 3, -1, 1, 3); }

TEST(AugMix, HasTorchvisionsParameters) {
  ExpectThatItMixes(false, 10, 2, 4, 0.5, 3);
  ExpectThatItMixes(true, 1, 5, 1, 2, 1);
}

TEST(AugMix, PosterizeKeepsFourBitsAtMost) {
  std::vector<double> bits;
  for (int64_t bin = 0; bin < 10; ++bin)
    bits.push_back(MagnitudeOf(kMost, Augmentation::kPosterize, kSize, 10, bin));
  // 4 - round(arange(10) / (9 / 4))
  EXPECT_THAT(bits, ElementsAre(4, 4, 3, 3, 2, 2, 1, 1, 0, 0));
}

TEST(AugMix, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params :
       {"severity: 0", "severity: 11", "mixture_width: 0", "chain_depth: 17", "alpha: 0"}) {
    const auto refused = RunGraph(absl::StrCat("- aug_mix: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("test.yaml:4:")) << params;
  }
}

}  // namespace
}  // namespace feedwater::server
