// trivial_augment_wide: each operation is that of the op that exists for it. Magnitudes:
// graph/augmentations_test.cc.
#include <gmock/gmock.h>

#include <map>

#include "tests/graph/augment_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

constexpr Magnitudes kMost = {
    .shear = 0.99, .translate = 32, .rotate = 135, .enhance = 0.99, .bits_off = 6};
constexpr Size kSize = {53, 41};

DrawnAugmentation DrawnFor(int64_t sample_id, int64_t bins = 31) {
  Draws draws = FirstDraws(sample_id);
  const auto kind = static_cast<Augmentation>(draws.Below(14));
  const double magnitude = MagnitudeOf(kMost, kind, kSize, bins, draws.Below(bins));
  const bool negative = draws.Uniform() < 0.5;
  return {kind, negative && IsSigned(kind) ? -magnitude : magnitude};
}

void ExpectThatEachIsItsOp(const std::string& params, int channels, bool bilinear, uint8_t fill) {
  const Bytes pixels = PatternPixels(kSize.height, kSize.width, channels);
  std::map<Augmentation, int> seen, negative;
  for (int64_t id = 0; id < 400; ++id) {
    const DrawnAugmentation drawn = DrawnFor(id);
    ++seen[drawn.kind];
    negative[drawn.kind] += drawn.magnitude < 0;
    EXPECT_EQ(RunOnPixels("- trivial_augment_wide" + params, kSize.height, kSize.width, channels,
                          pixels, id),
              Augmented(drawn, pixels, kSize, channels, bilinear, fill))
        << "operation " << static_cast<int>(drawn.kind) << ", magnitude " << drawn.magnitude;
  }
  ASSERT_EQ(seen.size(), 14u);
  for (const auto& [kind, count] : seen) {
    EXPECT_GT(count, 10);
    if (!IsSigned(kind)) continue;
    EXPECT_GT(negative[kind], 2);
    EXPECT_LT(negative[kind], count - 2);
  }
}

TEST(TrivialAugmentWide, EachOperationIsThatOfItsOp) { ExpectThatEachIsItsOp("", 3, false, 0); }

TEST(TrivialAugmentWide, GreyImagesToo) { ExpectThatEachIsItsOp("", 1, false, 0); }

TEST(TrivialAugmentWide, InterpolationAndFillAreThoseOfTheWarps) {
  ExpectThatEachIsItsOp(": {interpolation: bilinear, fill: 99}", 3, true, 99);
}

TEST(TrivialAugmentWide, NoMagnitudeGivesTheImage) {
  Bytes pixels = PatternPixels(kSize.height, kSize.width, 3);
  // A threshold of 255 still inverts white, as torchvision's does.
  std::replace(pixels.begin(), pixels.end(), uint8_t{255}, uint8_t{254});
  int still = 0;
  for (int64_t id = 0; id < 200; ++id) {
    const DrawnAugmentation drawn = DrawnFor(id, 2);
    Draws draws = FirstDraws(id);
    draws.Below(14);
    if (draws.Below(2) == 1 || drawn.kind == Augmentation::kAutoContrast ||
        drawn.kind == Augmentation::kEqualize)
      continue;
    ++still;
    EXPECT_EQ(RunOnPixels("- trivial_augment_wide: {num_magnitude_bins: 2}", kSize.height,
                          kSize.width, 3, pixels, id),
              pixels)
        << static_cast<int>(drawn.kind);
  }
  EXPECT_GT(still, 50);
}

TEST(TrivialAugmentWide, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params : {"num_magnitude_bins: 1", "interpolation: bicubic", "fill: 256"}) {
    const auto refused = RunGraph(absl::StrCat("- trivial_augment_wide: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("test.yaml:4:"));
  }
}

}  // namespace
}  // namespace feedwater::server
