// random_grayscale: Pillow's "L" in as many channels as before.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(RandomGrayscale, MakesThreeEqualChannels) {
  EXPECT_THAT(
      RunOnPixels("- random_grayscale: {p: 1}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 255, 255, 255, 124, 124, 124, 147, 147, 147, 48, 48, 48, 128, 128, 128));
}

TEST(RandomGrayscale, AGreyImageStaysAsItIs) {
  EXPECT_THAT(RunOnPixels("- random_grayscale: {p: 1}", 2, 3, 1, {0, 100, 200, 50, 50, 7}),
              ElementsAre(0, 100, 200, 50, 50, 7));
}

TEST(RandomGrayscale, ChangesAsOftenAsItsProbabilitySays) {
  constexpr int kSamples = 4000;
  int changed = 0;
  for (int64_t id = 0; id < kSamples; ++id)
    changed += RunOnPixels("- random_grayscale", 1, 1, 3, {1, 2, 90}, id) != Bytes{1, 2, 90};
  EXPECT_NEAR(changed, 0.1 * kSamples, 95);  // five standard deviations
}

}  // namespace
}  // namespace feedwater::server
