// to_mono: the mean of the channels, with or without their axis.
#include <gmock/gmock.h>

#include "tests/graph/ops/audio_op_testing.h"

namespace feedwater::server {
namespace {

using namespace audio_op_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ToMono, GivesTheMeanOfTheChannels) {
  const Floats stereo = {1, 2, 3, 5, 0, -3};
  EXPECT_THAT(RunOnNumbers("- to_mono", "audio", {2, 3}, stereo), ElementsAre(3, 1, 0));
  EXPECT_THAT(RunOnNumbers("- to_mono: {keepdim: true}", "audio", {2, 3}, stereo),
              ElementsAre(3, 1, 0));
  EXPECT_THAT(RunOnNumbers("- to_mono", "audio", {3}, {1, 2, 3}), ElementsAre(1, 2, 3));
}

TEST(ToMono, TheAxisStaysWhereAsked) {
  TestRecord record = RecordOf("audio", {2, 3}, Floats(6));
  const auto shape = [&](const char* graph) {
    const auto plan = MakePlan(PipelineText(graph, "[audio]"), record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return (*plan)->outputs()[0].spec.shape;
  };
  EXPECT_EQ(shape("- to_mono"), Shape({3}));
  EXPECT_EQ(shape("- to_mono: {keepdim: true}"), Shape({1, 3}));
}

TEST(ToMono, WhatIsNoWaveformIsRefused) {
  EXPECT_THAT(Refusal("- to_mono", "audio", {1, 2, 3}, Floats(6)),
              HasSubstr("takes a waveform of [channels, frames] or [frames]"));
}

}  // namespace
}  // namespace feedwater::server
