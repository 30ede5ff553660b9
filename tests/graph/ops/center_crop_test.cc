// center_crop: the middle by torchvision's rounding, zeros around an image that is too small.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

TEST(CenterCrop, TheMiddleIsRoundedHalfToEven) {
  // 5 - 2 = 3 columns over: round(1.5) = 2. 3 - 2 = 1 over: round(0.5) = 0.
  EXPECT_THAT(RunOnPixels("- center_crop: {size: [1, 2]}", 1, 5, 1, {1, 2, 3, 4, 5}),
              ElementsAre(3, 4));
  EXPECT_THAT(RunOnPixels("- center_crop: {size: [1, 2]}", 1, 3, 1, {1, 2, 3}), ElementsAre(1, 2));
}

TEST(CenterCrop, BothAxesAreCut) {
  EXPECT_THAT(RunOnPixels("- center_crop: {size: 1}", 3, 3, 3,
                          {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
                           15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27}),
              ElementsAre(13, 14, 15));
}

TEST(CenterCrop, ASmallImageIsPaddedWithZerosMoreOnTheRight) {
  // One column missing: none on the left, one on the right; three rows: one above, two below.
  EXPECT_THAT(RunOnPixels("- center_crop: {size: [4, 3]}", 1, 2, 1, {8, 9}),
              ElementsAre(0, 0, 0, 8, 9, 0, 0, 0, 0, 0, 0, 0));
}

TEST(CenterCrop, OneAxisMayBePaddedAndTheOtherCut) {
  EXPECT_THAT(RunOnPixels("- center_crop: {size: [1, 4]}", 3, 2, 1, {1, 2, 3, 4, 5, 6}),
              ElementsAre(0, 3, 4, 0));
}

TEST(CenterCrop, PlanesAreCutLikePixels) {
  TestRecord record;
  record.AddPixels(1, 4, 3, {1, 11, 21, 2, 12, 22, 3, 13, 23, 4, 14, 24});
  const auto result = RunGraph("- layout: {layout: CHW}\n- center_crop: {size: [1, 6]}", record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0],
              ElementsAre(0, 1, 2, 3, 4, 0, 0, 11, 12, 13, 14, 0, 0, 21, 22, 23, 24, 0));
}

}  // namespace
}  // namespace feedwater::server
