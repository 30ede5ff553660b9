// apply: all of its ops, or none.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kRow = {10, 20, 30, 40};

TEST(Apply, DoesAllOrNone) {
  const std::string graph =
      "- apply: {p: 0.3, ops: [random_invert: {p: 1}, random_horizontal_flip: {p: 1}]}";
  constexpr int kSamples = 4000;
  int done = 0;
  for (int64_t id = 0; id < kSamples; ++id) {
    const Bytes made = RunOnPixels(graph, 1, 4, 1, kRow, id);
    if (made == Bytes{215, 225, 235, 245}) {
      ++done;
    } else {
      ASSERT_EQ(made, kRow);
    }
  }
  EXPECT_NEAR(done, 0.3 * kSamples, 145);  // five standard deviations
}

TEST(Apply, WithCertaintyIsTheOpsThemselves) {
  EXPECT_THAT(RunOnPixels("- apply: {p: 1, ops: [random_invert: {p: 1}]}", 1, 4, 1, kRow),
              ElementsAre(245, 235, 225, 215));
  EXPECT_THAT(RunOnPixels("- apply: {p: 0, ops: [random_invert: {p: 1}]}", 1, 4, 1, kRow),
              ElementsAre(10, 20, 30, 40));
}

}  // namespace
}  // namespace feedwater::server
