// resize_mix: a box of the partner in every image, made smaller by means of areas, and the label
// knows its share.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/graph/mixed_batch.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 6;
constexpr Size kSize = {10, 8};

TEST(ResizeMix, ABoxOfThePartnerStandsInEverySampleAndTheLabelKnowsItsArea) {
  for (const char* graph : {"", "- normalize: {mean: [0], std: [1]}"}) {
    std::set<size_t> areas;
    for (uint64_t number = 0; number < 30; ++number) {
      const auto samples = MixedBatch(graph, "resize_mix", kSamples, kSize, number);
      ASSERT_EQ(samples.size(), static_cast<size_t>(kSamples));
      std::set<std::set<size_t>> boxes;
      for (size_t k = 0; k < kSamples; ++k) {
        std::vector<float> plane;
        if (*graph == 0) {
          for (size_t i = 0; i < samples[k][0].size(); i += 3) plane.push_back(samples[k][0][i]);
        } else {
          plane = As<float>(samples[k][0]);
          plane.resize(80);
        }
        std::set<size_t> box;
        float partner = static_cast<float>(k + 1);
        for (size_t i = 0; i < plane.size(); ++i) {
          if (plane[i] == static_cast<float>(k + 1)) continue;
          ASSERT_TRUE(box.empty() || plane[i] == partner);
          partner = plane[i];
          box.insert(i);
        }
        const auto label = As<float>(samples[k][1]);
        if (box.empty()) {
          EXPECT_FLOAT_EQ(label[k], 1);
          continue;
        }
        boxes.insert(box);
        const float share = static_cast<float>(box.size()) / 80;
        EXPECT_NEAR(label[k], 1 - share, 1e-6);
        EXPECT_NEAR(label[static_cast<size_t>(partner) - 1], share, 1e-6);
        areas.insert(box.size());
      }
      EXPECT_LE(boxes.size(), 1u) << "one box for the whole batch";
    }
    EXPECT_GT(areas.size(), 5u);
    EXPECT_LE(*areas.rbegin(), 48u);  // 0.8 of each side
  }
}

TEST(ResizeMix, WhatIsPastedIsTheMeanOfAreas) {
  // One sample is its own partner. Half of 4x2 pixels: means of 2x2.
  TestRecord record;
  record.AddPixels(2, 4, 1, {10, 20, 30, 41, 14, 24, 34, 44}).AddLabel(0);
  const auto plan =
      MakePlan(PipelineText("", "[image]", "batch: {graph: [{resize_mix: {scale: [0.5, 0.5]}}]}\n"),
               record.fields(), true, 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  TestBatch batch(**plan, 1);
  SampleInput input;
  input.record = record.record();
  ASSERT_TRUE((*plan)->Run(input, 0, batch.memory, workspace).ok());
  ASSERT_TRUE((*plan)->FinishBatch(1, 0, EpochKey(2, 0), batch.memory, workspace).ok());
  const Bytes made = batch.Output(0, 0), own = {10, 20, 30, 41, 14, 24, 34, 44};
  std::vector<int> changed;
  for (size_t i = 0; i < 8; ++i) {
    if (made[i] != own[i]) changed.push_back(made[i]);
  }
  EXPECT_THAT(changed, ElementsAre(17, 37));  // 68 / 4, 149 / 4
}

TEST(ResizeMix, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4}).AddLabel(0);
  for (const char* params : {"scale: [0.8, 0.1]", "scale: [0, 0.5]", "scale: [0.5, 1.5]",
                             "scale: [.nan, 0.5]", "scale: 0.5"}) {
    const auto plan =
        MakePlan(PipelineText("", "[image]",
                              absl::StrCat("batch: {graph: [{resize_mix: {", params, "}}]}\n")),
                 record.fields());
    ASSERT_FALSE(plan.ok()) << params;
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("'scale'")) << params;
  }
}

}  // namespace
}  // namespace feedwater::server
