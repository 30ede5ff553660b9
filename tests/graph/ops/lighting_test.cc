// lighting: one amount for each channel, of AlexNet's spread.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

TEST(Lighting, AddsOneNumberToEachChannel) {
  double sums[3] = {}, products[3] = {};
  constexpr int kSamples = 4000;
  for (int64_t id = 0; id < kSamples; ++id) {
    const Bytes out =
        RunOnPixels("- lighting: {alpha_std: 0.5}", 1, 2, 3, {100, 110, 120, 130, 140, 150}, id);
    for (int c = 0; c < 3; ++c) {
      const int added = out[c] - (100 + 10 * c);
      ASSERT_EQ(out[3 + c] - (130 + 10 * c), added);
      sums[c] += added;
      products[c] += added * added;
    }
  }
  // Standard deviations: 0.5 * 255 * |eigenvectors * eigenvalues|, by channel.
  const double expected[3] = {15.84, 16.11, 16.27};
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(sums[c] / kSamples, 0, 1.4);
    EXPECT_NEAR(std::sqrt(products[c] / kSamples), expected[c], 1);
  }
}

TEST(Lighting, ValuesAreCutOffAtBothEnds) {
  for (int64_t id = 0; id < 20; ++id) {
    const Bytes out =
        RunOnPixels("- lighting: {alpha_std: 10}", 1, 2, 3, {0, 0, 0, 255, 255, 255}, id);
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(out[c] == 0 || out[3 + c] == 255);
  }
}

TEST(Lighting, WithoutAmountsOrColoursNothingChanges) {
  EXPECT_THAT(RunOnPixels("- lighting: {alpha_std: 0}", 1, 1, 3, {1, 2, 3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(RunOnPixels("- lighting", 1, 2, 1, {9, 200}), ElementsAre(9, 200));
}

}  // namespace
}  // namespace feedwater::server
