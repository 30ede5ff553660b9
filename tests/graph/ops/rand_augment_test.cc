// rand_augment: its operations one after the other are those of the ops that exist for them.
// Magnitudes: graph/augmentations_test.cc.
#include <gmock/gmock.h>

#include "tests/graph/augment_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

constexpr Size kSize = {53, 41};

void ExpectThatTheyAreTheirOps(int num_ops, int magnitude, int bins, int channels, int samples) {
  const Bytes pixels = PatternPixels(kSize.height, kSize.width, channels);
  for (int64_t id = 0; id < samples; ++id) {
    Draws draws = FirstDraws(id);
    Bytes expected = pixels;
    std::string all;
    for (int i = 0; i < num_ops; ++i) {
      const auto kind = static_cast<Augmentation>(draws.Below(14));
      const double most = MagnitudeOf(kModerate, kind, kSize, bins, magnitude);
      const bool negative = draws.Uniform() < 0.5;
      expected =
          Augmented({kind, negative && IsSigned(kind) ? -most : most}, expected, kSize, channels);
      absl::StrAppend(&all, " ", static_cast<int>(kind));
    }
    EXPECT_EQ(RunOnPixels(absl::StrCat("- rand_augment: {num_ops: ", num_ops, ", magnitude: ",
                                       magnitude, ", num_magnitude_bins: ", bins, "}"),
                          kSize.height, kSize.width, channels, pixels, id),
              expected)
        << all;
  }
}

TEST(RandAugment, PairsAreThoseOfTheirOps) { ExpectThatTheyAreTheirOps(2, 9, 31, 3, 500); }

TEST(RandAugment, LongerChainsAndGreyImagesToo) {
  ExpectThatTheyAreTheirOps(1, 5, 11, 3, 60);
  ExpectThatTheyAreTheirOps(5, 30, 31, 1, 100);
  ExpectThatTheyAreTheirOps(16, 4, 11, 3, 30);
}

TEST(RandAugment, TheDefaultsAreTorchvisions) {
  const Bytes pixels = PatternPixels(20, 24, 3);
  for (int64_t id = 0; id < 50; ++id) {
    EXPECT_EQ(RunOnPixels("- rand_augment", 20, 24, 3, pixels, id),
              RunOnPixels("- rand_augment: {num_ops: 2, magnitude: 9, num_magnitude_bins: 31, "
                          "interpolation: nearest, fill: 0}",
                          20, 24, 3, pixels, id));
  }
}

TEST(RandAugment, NoOperationsGiveTheImage) {
  const Bytes pixels = PatternPixels(20, 24, 3);
  EXPECT_EQ(RunOnPixels("- rand_augment: {num_ops: 0}", 20, 24, 3, pixels), pixels);
}

TEST(RandAugment, BehindADecodeOfUnknownSizeItPlansItsMemory) {
  TestRecord record;
  record.AddEncoded(EncodedImage(40, 50, ".png"));
  const auto out =
      RunGraph("- decode\n- rand_augment: {num_ops: 3}\n- resize: {size: [8, 8]}", record);
  ASSERT_TRUE(out.ok()) << out.status();
}

TEST(RandAugment, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params : {"magnitude: 31", "magnitude: -1", "num_ops: 17", "num_ops: -1",
                             "magnitude: 0, num_magnitude_bins: 1"}) {
    const auto refused = RunGraph(absl::StrCat("- rand_augment: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("test.yaml:4:")) << params;
  }
  EXPECT_THAT(
      std::string(RunGraph("- rand_augment: {magnitude: 31}", record).status().message()),
      HasSubstr("'magnitude' counts from 0 and must be less than 'num_magnitude_bins', 31"));
}

}  // namespace
}  // namespace feedwater::server
