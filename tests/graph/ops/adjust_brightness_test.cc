// adjust_brightness: what Pillow's ImageEnhance gives.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(AdjustBrightness, GivesPillowsNumbers) {
  EXPECT_THAT(
      RunOnPixels("- adjust_brightness: {brightness_factor: 1.2}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 240, 120, 60, 12, 255, 36, 20, 40, 241, 153, 153, 152));
}

TEST(AdjustBrightness, OneChangesNothing) {
  EXPECT_EQ(RunOnPixels("- adjust_brightness: {brightness_factor: 1}", 2, 3, 3, kPixels), kPixels);
}

TEST(AdjustBrightness, GreyImagesToo) {
  EXPECT_THAT(RunOnPixels("- adjust_brightness: {brightness_factor: 1.5}", 2, 3, 1,
                          {0, 100, 200, 50, 50, 7}),
              ElementsAre(0, 150, 255, 75, 75, 10));
}

}  // namespace
}  // namespace feedwater::server
