// one_of: one of several ops, by weight.
#include <gmock/gmock.h>

#include <map>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

constexpr int kSamples = 4000;

// How often each result comes, of one pixel of 16 on which every op leaves its own mark.
std::map<uint8_t, int> Results(const std::string& params) {
  std::map<uint8_t, int> seen;
  for (int64_t id = 0; id < kSamples; ++id) {
    const std::string graph =
        "- one_of: {ops: [random_invert: {p: 1}, random_solarize: {threshold: 0.0, p: 1}, "
        "adjust_brightness: {brightness_factor: 2}, adjust_brightness: {brightness_factor: 0.5}]" +
        params + "}";
    ++seen[RunOnPixels(graph, 1, 1, 1, {16}, id)[0]];
  }
  return seen;
}

TEST(OneOf, AllAreAsLikelyByDefault) {
  const auto seen = Results("");
  ASSERT_EQ(seen.size(), 3u);  // solarize from 0 on is invert
  EXPECT_NEAR(seen.at(239), kSamples / 2, 160);
  EXPECT_NEAR(seen.at(32), kSamples / 4, 140);
  EXPECT_NEAR(seen.at(8), kSamples / 4, 140);
}

TEST(OneOf, GoesByItsWeights) {
  const auto seen = Results(", weights: [0, 1, 0, 3]");
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen.at(239), kSamples / 4, 140);
  EXPECT_NEAR(seen.at(8), 3 * kSamples / 4, 140);
}

TEST(OneOf, DoesNothingAsOftenAsItsProbabilitySays) {
  const auto seen = Results(", p: 0.25, weights: [1, 1, 0, 0]");
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen.at(16), 3 * kSamples / 4, 140);
  EXPECT_NEAR(seen.at(239), kSamples / 4, 140);
}

// Which op is chosen does not depend on p, so that a sample keeps it when p changes.
TEST(OneOf, TheChoiceIsTheSameWhateverPIs) {
  const auto run = [](const std::string& p, int64_t id) {
    return RunOnPixels("- one_of: {p: " + p +
                           ", ops: [random_invert: {p: 1}, "
                           "adjust_brightness: {brightness_factor: 2}]}",
                       1, 1, 1, {16}, id)[0];
  };
  for (int64_t id = 0; id < 200; ++id) {
    const uint8_t often = run("1", id), seldom = run("0.3", id);
    EXPECT_TRUE(seldom == 16 || seldom == often) << id;
  }
}

TEST(OneOf, RefusesWeightsThatDoNotFit) {
  TestRecord record;
  record.AddPixels(1, 1, 3, Bytes(3)).AddLabel(1);
  const auto message = [&](const std::string& weights) {
    return std::string(MakePlan(PipelineText("- one_of: {ops: [random_invert, random_equalize], "
                                             "weights: " +
                                                 weights + "}",
                                             "[image]"),
                                record.fields())
                           .status()
                           .message());
  };
  EXPECT_THAT(message("[1]"), HasSubstr("'weights' has 1 numbers for 2 ops"));
  EXPECT_THAT(message("[0, 0]"), HasSubstr("all 0"));
  EXPECT_THAT(message("[1, -1]"), HasSubstr("'weights'"));
  EXPECT_THAT(message("[1, .nan]"), HasSubstr("'weights'"));
  EXPECT_EQ(message("[1, 0]"), "");
}

}  // namespace
}  // namespace feedwater::server
