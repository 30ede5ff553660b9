// random_affine: torchvision's matrix. Pixels, boxes: imaging/warp_test.cc, joint_fields_test.cc.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RandomAffine, DegreesAloneTurnClockwise) {
  EXPECT_THAT(RunOnPixels("- random_affine: {degrees: [90, 90]}", 2, 2, 1, {1, 2, 3, 4}),
              ElementsAre(3, 1, 4, 2));
}

TEST(RandomAffine, TranslateMovesByWholePixels) {
  bool left = false, right = false, still = false;
  for (int64_t id = 0; id < 60; ++id) {
    const Bytes out = RunOnPixels("- random_affine: {degrees: 0, translate: [0.34, 0], fill: 9}", 1,
                                  3, 1, {1, 2, 3}, id);
    left |= out == Bytes{2, 3, 9};
    right |= out == Bytes{9, 1, 2};
    still |= out == Bytes{1, 2, 3};
    EXPECT_TRUE(out == (Bytes{2, 3, 9}) || out == (Bytes{9, 1, 2}) || out == (Bytes{1, 2, 3}));
  }
  EXPECT_TRUE(left && right && still);
}

TEST(RandomAffine, ScaleIsAroundTheMiddle) {
  EXPECT_THAT(RunOnPixels("- random_affine: {degrees: 0, scale: [2, 2]}", 4, 4, 1,
                          {0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0}),
              ElementsAre(1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4));
}

TEST(RandomAffine, ShearMovesRowsAgainstEachOther) {
  // 45 degrees: each row one pixel further than the one before it, around the middle.
  EXPECT_THAT(RunOnPixels("- random_affine: {degrees: 0, shear: [45, 45]}", 3, 4, 1,
                          {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
              ElementsAre(0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 0));
  EXPECT_EQ(RunOnPixels("- random_affine: {degrees: 0, shear: [0, 0, 0, 0]}", 1, 2, 1, {1, 2}),
            (Bytes{1, 2}));
}

TEST(RandomAffine, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const auto refusal = [&](const std::string& params) {
    const auto result =
        RunGraph(absl::StrCat("- random_affine: {degrees: 0, ", params, "}"), record);
    EXPECT_FALSE(result.ok()) << params;
    return std::string(result.status().message());
  };
  EXPECT_THAT(refusal("scale: [0, 1]"), HasSubstr("'scale'"));
  EXPECT_THAT(refusal("scale: [2, 1]"), HasSubstr("low <= high, not [2.0, 1.0]; cure: [1.0, 2.0]"));
  EXPECT_THAT(refusal("translate: [1]"), HasSubstr("'translate' must be [x, y]"));
  EXPECT_THAT(refusal("shear: 90"), HasSubstr("'shear'"));
  EXPECT_THAT(refusal("shear: [1, 0, 0, 1]"), HasSubstr("low <= high, not [1.0, 0.0, 0.0, 1.0]"));
  EXPECT_THAT(refusal("shear: [-90, 3]"), HasSubstr("-90"));
}

}  // namespace
}  // namespace feedwater::server
