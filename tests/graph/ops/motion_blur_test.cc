// motion_blur: its parameters and draws. The arithmetic: imaging/filter_test.cc.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(MotionBlurOp, ADotBecomesALineOfTheDrawnLength) {
  Bytes pixels(21 * 21, 0);
  pixels[10 * 21 + 10] = 255;
  std::vector<int> lengths(8);
  for (int64_t id = 0; id < 60; ++id) {
    const Bytes across =
        RunOnPixels("- motion_blur: {blur_limit: [3, 7], degrees: 0, p: 1}", 21, 21, 1, pixels, id);
    const auto length = 441 - std::count(across.begin(), across.end(), 0);
    ASSERT_TRUE(length == 3 || length == 5 || length == 7);
    ++lengths[static_cast<size_t>(length)];
    EXPECT_EQ(across[static_cast<size_t>(10 * 21 + 10 + length / 2)], (255 + length / 2) / length);
    const Bytes down = RunOnPixels("- motion_blur: {blur_limit: 5, degrees: [90, 90], p: 1}", 21,
                                   21, 1, pixels, id);
    EXPECT_EQ(down[8 * 21 + 10], 51);
    EXPECT_EQ(down[12 * 21 + 10], 51);
    // Counter-clockwise: up to the right.
    const Bytes up = RunOnPixels("- motion_blur: {blur_limit: 3, degrees: [45, 45], p: 1}", 21, 21,
                                 1, pixels, id);
    EXPECT_EQ(up[9 * 21 + 11], 85);
    EXPECT_EQ(up[11 * 21 + 9], 85);
  }
  for (size_t length : {3u, 5u, 7u}) EXPECT_GT(lengths[length], 5);
}

TEST(MotionBlurOp, PIsTheShareOfImagesThatChange) {
  const Bytes pixels = PatternPixels(9, 9, 1);
  int changed = 0;
  for (int64_t id = 0; id < 300; ++id)
    changed += RunOnPixels("- motion_blur: {p: 0.3}", 9, 9, 1, pixels, id) != pixels;
  EXPECT_NEAR(changed, 90, 40);
}

TEST(MotionBlurOp, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params : {"blur_limit: 4", "blur_limit: [7, 3]", "blur_limit: 3.5",
                             "blur_limit: 1", "blur_limit: 65"}) {
    const auto refused = RunGraph(absl::StrCat("- motion_blur: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()),
                ::testing::AllOf(HasSubstr("test.yaml:4:"), HasSubstr("'blur_limit'")));
  }
}

}  // namespace
}  // namespace feedwater::server
