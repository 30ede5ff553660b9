// adjust_saturation: what Pillow's ImageEnhance gives.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(AdjustSaturation, GivesPillowsNumbers) {
  EXPECT_THAT(
      RunOnPixels("- adjust_saturation: {saturation_factor: 1.7}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 253, 83, 0, 0, 255, 0, 0, 24, 255, 128, 128, 126));
}

TEST(AdjustSaturation, OneChangesNothing) {
  EXPECT_EQ(RunOnPixels("- adjust_saturation: {saturation_factor: 1}", 2, 3, 3, kPixels), kPixels);
}

TEST(AdjustSaturation, AGreyImageHasNone) {
  EXPECT_THAT(
      RunOnPixels("- adjust_saturation: {saturation_factor: 0}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
      ElementsAre(0, 100, 200, 50, 50, 7));
}

}  // namespace
}  // namespace feedwater::server
