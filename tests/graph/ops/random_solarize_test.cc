// random_solarize: what Pillow's ImageOps.solarize gives.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(RandomSolarize, GivesPillowsNumbers) {
  EXPECT_THAT(RunOnPixels("- random_solarize: {threshold: 128, p: 1}", 2, 3, 3, kPixels),
              ElementsAre(0, 0, 0, 0, 0, 0, 55, 100, 50, 10, 15, 30, 17, 34, 54, 127, 127, 127));
}

TEST(RandomSolarize, AThresholdBetweenTwoValuesIsTheUpperOne) {
  EXPECT_THAT(RunOnPixels("- random_solarize: {threshold: 99.5, p: 1}", 2, 3, 3, kPixels),
              ElementsAre(0, 0, 0, 0, 0, 0, 55, 155, 50, 10, 15, 30, 17, 34, 54, 127, 127, 128));
}

TEST(RandomSolarize, FromZeroItInvertsAndFromAbove255ItDoesNothing) {
  const Bytes grey = {0, 100, 200, 50, 50, 7};
  EXPECT_THAT(RunOnPixels("- random_solarize: {threshold: 0, p: 1}", 2, 3, 1, grey),
              ElementsAre(255, 155, 55, 205, 205, 248));
  EXPECT_EQ(RunOnPixels("- random_solarize: {threshold: 255.5, p: 1}", 2, 3, 1, grey), grey);
}

TEST(RandomSolarize, ChangesAsOftenAsItsProbabilitySays) {
  constexpr int kSamples = 4000;
  int changed = 0;
  for (int64_t id = 0; id < kSamples; ++id)
    changed += RunOnPixels("- random_solarize: {threshold: 0, p: 0.3}", 1, 2, 1, {1, 2}, id) !=
               Bytes{1, 2};
  EXPECT_NEAR(changed, 0.3 * kSamples, 145);  // five standard deviations
}

}  // namespace
}  // namespace feedwater::server
