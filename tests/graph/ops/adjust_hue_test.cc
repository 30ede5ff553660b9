// adjust_hue: what torchvision's adjust_hue gives on PIL images.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(AdjustHue, GivesPillowsNumbers) {
  EXPECT_THAT(
      RunOnPixels("- adjust_hue: {hue_factor: 0.1}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 200, 188, 50, 10, 240, 162, 108, 17, 201, 128, 128, 127));
}

TEST(AdjustHue, BackwardsToo) {
  EXPECT_THAT(
      RunOnPixels("- adjust_hue: {hue_factor: -0.25}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 181, 50, 200, 240, 145, 10, 17, 201, 95, 128, 127, 128));
}

TEST(AdjustHue, AGreyImageHasNone) {
  EXPECT_THAT(RunOnPixels("- adjust_hue: {hue_factor: 0.5}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
              ElementsAre(0, 100, 200, 50, 50, 7));
}

}  // namespace
}  // namespace feedwater::server
