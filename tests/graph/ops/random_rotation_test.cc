// random_rotation: Pillow's rotate. What warps do to pixels and boxes: imaging/warp_test.cc,
// joint_fields_test.cc.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RandomRotation, QuarterTurnsAreCounterClockwise) {
  // 1 2    2 4
  // 3 4    1 3
  for (const char* interpolation : {"nearest", "bilinear"}) {
    EXPECT_THAT(RunOnPixels(absl::StrCat("- random_rotation: {degrees: [90, 90], interpolation: ",
                                         interpolation, "}"),
                            2, 2, 1, {1, 2, 3, 4}),
                ElementsAre(2, 4, 1, 3));
  }
}

TEST(RandomRotation, ExpandShowsAllOfIt) {
  TestRecord record;
  record.AddPixels(1, 3, 1, {1, 2, 3});
  const auto outs = RunGraph(
      "- random_rotation: {degrees: [90, 90], expand: true}\n- center_crop: {size: [3, 1]}",
      record);
  ASSERT_TRUE(outs.ok()) << outs.status();
  EXPECT_THAT((*outs)[0], ElementsAre(3, 2, 1));
}

TEST(RandomRotation, TheFillShowsInTheCorners) {
  const Bytes out = RunOnPixels("- random_rotation: {degrees: [45, 45], fill: [7, 8, 9]}", 21, 21,
                                3, Bytes(21 * 21 * 3, 200));
  EXPECT_THAT(Bytes(out.begin(), out.begin() + 3), ElementsAre(7, 8, 9));
  EXPECT_EQ(out[(10 * 21 + 10) * 3], 200);
}

TEST(RandomRotation, TheCenterStaysWhereItIs) {
  Bytes pixels(25, 0);
  pixels[0] = 99;
  EXPECT_EQ(RunOnPixels("- random_rotation: {degrees: [180, 180], center: [0.5, 0.5]}", 5, 5, 1,
                        pixels)[0],
            99);
}

TEST(RandomRotation, AnglesAreUniformInTheRange) {
  // A dot right of the middle tells the angle: above it for positive ones.
  Bytes pixels(41 * 41, 0);
  pixels[20 * 41 + 38] = 255;
  int above = 0, below = 0;
  for (int64_t id = 0; id < 200; ++id) {
    const Bytes out = RunOnPixels(
        "- random_rotation: {degrees: [-30, 90], interpolation: bilinear}", 41, 41, 1, pixels, id);
    const auto at = std::max_element(out.begin(), out.end()) - out.begin();
    above += at / 41 < 20;
    below += at / 41 > 20;
  }
  EXPECT_NEAR(above, 150, 25);
  EXPECT_NEAR(below, 50, 25);
}

TEST(RandomRotation, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const auto refusal = [&](const std::string& params) {
    const auto result = RunGraph(absl::StrCat("- random_rotation: {", params, "}"), record);
    EXPECT_FALSE(result.ok()) << params;
    return std::string(result.status().message());
  };
  EXPECT_THAT(refusal("degrees: [30, 10]"), HasSubstr("low <= high"));
  EXPECT_THAT(refusal("degrees: 10, center: [1]"), HasSubstr("'center' must be [x, y]"));
  EXPECT_THAT(refusal("degrees: 10, interpolation: bicubic"), HasSubstr("'interpolation'"));
  EXPECT_THAT(refusal("degrees: 10, fill: 300"), HasSubstr("'fill'"));
}

}  // namespace
}  // namespace feedwater::server
