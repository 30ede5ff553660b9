// adjust_contrast: what Pillow's ImageEnhance gives.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(AdjustContrast, GivesPillowsNumbers) {
  EXPECT_THAT(
      RunOnPixels("- adjust_contrast: {contrast_factor: 1.3}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 224, 94, 29, 0, 255, 3, 0, 9, 226, 131, 131, 130));
}

TEST(AdjustContrast, OneChangesNothing) {
  EXPECT_EQ(RunOnPixels("- adjust_contrast: {contrast_factor: 1}", 2, 3, 3, kPixels), kPixels);
}

TEST(AdjustContrast, NoneIsGreyOfTheMean) {
  EXPECT_THAT(
      RunOnPixels("- adjust_contrast: {contrast_factor: 0}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
      ElementsAre(68, 68, 68, 68, 68, 68));
}

}  // namespace
}  // namespace feedwater::server
