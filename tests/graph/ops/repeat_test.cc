// repeat: the same ops again, each time with draws of their own.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Repeat, DoesItsOpsSoManyTimes) {
  const auto run = [](int n) {
    return RunOnPixels(absl::StrCat("- repeat: {times: ", n,
                                    ", ops: [adjust_brightness: {brightness_factor: 0.5}]}"),
                       1, 1, 1, {128});
  };
  EXPECT_THAT(run(1), ElementsAre(64));
  EXPECT_THAT(run(3), ElementsAre(16));
}

TEST(Repeat, EachTimeDrawsAnew) {
  // Of four rounds that each halve with probability one half: a binomial distribution.
  int seen[5] = {};
  constexpr int kSamples = 2000;
  for (int64_t id = 0; id < kSamples; ++id) {
    const Bytes made = RunOnPixels(
        "- repeat: {times: 4, ops: [apply: {p: 0.5, ops: [adjust_brightness: {brightness_factor: "
        "0.5}]}]}",
        1, 1, 1, {128}, id);
    int halvings = 0;
    while (128 >> halvings != made[0] && halvings < 4) ++halvings;
    ++seen[halvings];
  }
  EXPECT_NEAR(seen[0], kSamples / 16, 55);
  EXPECT_NEAR(seen[2], kSamples * 6 / 16, 110);
  EXPECT_NEAR(seen[4], kSamples / 16, 55);
}

TEST(Repeat, SizesGrowWithEachRound) {
  TestRecord record;
  record.AddPixels(2, 2, 1, Bytes(4)).AddLabel(1);
  const auto plan = MakePlan(
      PipelineText("- repeat: {times: 3, ops: [pad: {padding: 1}]}", "[image]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->outputs()[0].spec, PixelSpec(8, 8, 1));
}

TEST(Repeat, RefusesTooMuch) {
  TestRecord record;
  record.AddPixels(2, 2, 1, Bytes(4)).AddLabel(1);
  const auto message = [&](const std::string& params) {
    return std::string(
        MakePlan(PipelineText("- repeat: {" + params + "}", "[image]"), record.fields())
            .status()
            .message());
  };
  EXPECT_THAT(message("times: 0, ops: [random_invert]"), HasSubstr("'times'"));
  EXPECT_THAT(message("times: 17, ops: [random_invert]"), HasSubstr("'times'"));
  std::string ops;
  for (int i = 0; i < 17; ++i) ops += i == 0 ? "random_invert" : ", random_invert";
  EXPECT_THAT(message("times: 16, ops: [" + ops + "]"), HasSubstr("more than 256 ops"));
}

}  // namespace
}  // namespace feedwater::server
