// random_posterize: what Pillow's ImageOps.posterize gives.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(RandomPosterize, GivesPillowsNumbers) {
  EXPECT_THAT(
      RunOnPixels("- random_posterize: {bits: 4, p: 1}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 240, 240, 240, 192, 96, 48, 0, 240, 16, 16, 32, 192, 128, 128, 112));
}

TEST(RandomPosterize, OneBitIsBlackAndHalf) {
  EXPECT_THAT(RunOnPixels("- random_posterize: {bits: 1, p: 1}", 2, 3, 3, kPixels),
              ElementsAre(0, 0, 0, 128, 128, 128, 128, 0, 0, 0, 128, 0, 0, 0, 128, 128, 128, 0));
}

TEST(RandomPosterize, EightBitsChangeNothingAndNoneIsBlack) {
  EXPECT_THAT(RunOnPixels("- random_posterize: {bits: 0, p: 1}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
              ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(RandomPosterize, ChangesAsOftenAsItsProbabilitySays) {
  constexpr int kSamples = 4000;
  int changed = 0;
  for (int64_t id = 0; id < kSamples; ++id)
    changed +=
        RunOnPixels("- random_posterize: {bits: 4, p: 0.3}", 1, 2, 1, {1, 2}, id) != Bytes{1, 2};
  EXPECT_NEAR(changed, 0.3 * kSamples, 145);  // five standard deviations
}

}  // namespace
}  // namespace feedwater::server
