// random_channel_permutation: all orders, alike often.
#include <gmock/gmock.h>

#include <map>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

TEST(RandomChannelPermutation, GivesAllSixOrdersAlikeOften) {
  std::map<Bytes, int> seen;
  for (int64_t id = 0; id < 6000; ++id) {
    const Bytes out =
        RunOnPixels("- random_channel_permutation", 1, 2, 3, {1, 2, 3, 11, 12, 13}, id);
    // The same order for every pixel.
    for (int c = 0; c < 3; ++c) ASSERT_EQ(out[c] + 10, out[3 + c]);
    ++seen[out];
  }
  EXPECT_EQ(seen.size(), 6u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 1000, 145);  // five deviations
}

TEST(RandomChannelPermutation, AGreyImageStaysAsItIs) {
  EXPECT_THAT(RunOnPixels("- random_channel_permutation", 1, 2, 1, {9, 200}), ElementsAre(9, 200));
}

}  // namespace
}  // namespace feedwater::server
