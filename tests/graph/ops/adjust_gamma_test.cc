// adjust_gamma: what torchvision's adjust_gamma gives on PIL images.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(AdjustGamma, GivesPillowsNumbers) {
  EXPECT_THAT(
      RunOnPixels("- adjust_gamma: {gamma: 0.7}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 215, 132, 81, 26, 245, 57, 38, 62, 216, 158, 158, 157));
}

TEST(AdjustGamma, WithAGainToo) {
  EXPECT_THAT(RunOnPixels("- adjust_gamma: {gamma: 2.2, gain: 1.5}", 2, 3, 3, kPixels),
              ElementsAre(0, 0, 0, 255, 255, 255, 225, 48, 10, 0, 255, 3, 0, 4, 227, 84, 84, 82));
}

TEST(AdjustGamma, GreyImagesToo) {
  EXPECT_THAT(RunOnPixels("- adjust_gamma: {gamma: 0.5}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
              ElementsAre(0, 160, 226, 113, 113, 42));
}

}  // namespace
}  // namespace feedwater::server
