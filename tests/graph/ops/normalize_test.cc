// normalize: (value - mean) * (1 / std) in float32, rounded once, in the asked layout.
#include <gmock/gmock.h>

#include "server/graph/element.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

constexpr const char* kParams = "mean: [10, 20, 30], std: [2, 4, 5]";

TEST(Normalize, GivesFloatPlanesByDefault) {
  const Bytes out =
      RunOnPixels(absl::StrCat("- normalize: {", kParams, "}"), 1, 2, 3, {10, 20, 30, 14, 12, 0});
  EXPECT_THAT(As<float>(out), ElementsAre(0.0f, 2.0f, 0.0f, -2.0f, 0.0f, -30.0f * (1.0f / 5.0f)));
}

TEST(Normalize, HwcKeepsPixelsTogether) {
  const Bytes out = RunOnPixels(absl::StrCat("- normalize: {layout: HWC, ", kParams, "}"), 1, 2, 3,
                                {10, 20, 30, 14, 12, 0});
  EXPECT_THAT(As<float>(out), ElementsAre(0.0f, 0.0f, 0.0f, 2.0f, -2.0f, -30.0f * (1.0f / 5.0f)));
}

TEST(Normalize, OneNumberServesAllChannels) {
  EXPECT_THAT(
      As<float>(RunOnPixels("- normalize: {mean: [128], std: [64]}", 1, 1, 3, {0, 128, 192})),
      ElementsAre(-2.0f, 0.0f, 1.0f));
  EXPECT_THAT(As<float>(RunOnPixels("- normalize: {mean: [128], std: [64]}", 1, 2, 1, {0, 192})),
              ElementsAre(-2.0f, 1.0f));
}

TEST(Normalize, HalvesAreRoundedOnce) {
  const Bytes pixels = PatternPixels(4, 5, 3);
  const auto full = As<float>(
      RunOnPixels("- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}", 4,
                  5, 3, pixels));
  const auto half =
      As<uint16_t>(RunOnPixels("- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, "
                               "57.12, 57.375], dtype: float16}",
                               4, 5, 3, pixels));
  const auto brain =
      As<uint16_t>(RunOnPixels("- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, "
                               "57.12, 57.375], dtype: bfloat16}",
                               4, 5, 3, pixels));
  ASSERT_EQ(full.size(), half.size());
  ASSERT_EQ(full.size(), brain.size());
  for (size_t i = 0; i < full.size(); ++i) {
    EXPECT_EQ(half[i], FloatToHalf(full[i])) << i;
    EXPECT_EQ(brain[i], FloatToBFloat16(full[i])) << i;
  }
}

TEST(Normalize, Uint8IsRoundedHalfToEvenAndSaturated) {
  EXPECT_THAT(RunOnPixels("- normalize: {mean: [0], std: [2], dtype: uint8, layout: HWC}", 1, 4, 1,
                          {1, 3, 4, 255}),
              ElementsAre(0, 2, 2, 128));
  EXPECT_THAT(RunOnPixels("- normalize: {mean: [100], std: [0.5], dtype: uint8, layout: HWC}", 1, 3,
                          1, {50, 101, 255}),
              ElementsAre(0, 2, 255));
}

TEST(Normalize, WhatIsNotBytesOfPixelsIsNormalizedAlike) {
  // The generic path (float planes) against the codec's (bytes).
  const Bytes pixels = PatternPixels(3, 4, 3);
  for (const char* dtype : {"float32", "float16", "bfloat16", "uint8"}) {
    for (const char* layout : {"CHW", "HWC"}) {
      const std::string op =
          absl::StrCat("- normalize: {dtype: ", dtype, ", layout: ", layout, ", ", kParams, "}");
      TestRecord record;
      record.AddPixels(3, 4, 3, pixels);
      const auto detour =
          RunGraph(absl::StrCat("- cast: {dtype: float32}\n- layout: {layout: CHW}\n", op), record,
                   "[image]", 7,
                   /*fuse=*/false);
      ASSERT_TRUE(detour.ok()) << detour.status();
      EXPECT_EQ((*detour)[0], RunOnPixels(op, 3, 4, 3, pixels)) << dtype << " " << layout;
    }
  }
}

}  // namespace
}  // namespace feedwater::server
