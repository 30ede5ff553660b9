// mosaic: four parts that meet at one point, each in its place, and the label knows their areas.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "tests/graph/mixed_batch.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 7;
constexpr int kHeight = 8, kWidth = 12;

TEST(Mosaic, FourPartsMeetAtOnePointAndTheLabelKnowsTheirAreas) {
  std::set<std::pair<int, int>> points;
  for (const char* graph : {"", "- normalize: {mean: [0], std: [1]}"}) {
    for (uint64_t number = 0; number < 20; ++number) {
      // The draws that the op makes, made again.
      Draws draws(EpochKey(2, 0), number, kBatchInstance);
      const int x = static_cast<int>(std::lround(kWidth * draws.Uniform(0.25, 0.75))),
                y = static_cast<int>(std::lround(kHeight * draws.Uniform(0.25, 0.75)));
      points.insert({x, y});
      std::set<std::vector<float>> corners[3];
      const auto samples = MixedBatch(graph, "mosaic", kSamples, {kWidth, kHeight}, number);
      ASSERT_EQ(samples.size(), static_cast<size_t>(kSamples));
      for (size_t k = 0; k < kSamples; ++k) {
        const auto value = [&](int row, int column) {
          const size_t i = static_cast<size_t>(row * kWidth + column);
          return *graph == 0 ? static_cast<float>(samples[k][0][3 * i])
                             : As<float>(samples[k][0])[i];
        };
        std::map<size_t, float> expected;
        for (int row = 0; row < kHeight; ++row) {
          for (int column = 0; column < kWidth; ++column) {
            // All of a part is one image's.
            const float part = value(row < y ? 0 : kHeight - 1, column < x ? 0 : kWidth - 1);
            ASSERT_EQ(value(row, column), part) << row << " " << column;
            expected[static_cast<size_t>(part) - 1] += 1.0f / (kWidth * kHeight);
          }
        }
        EXPECT_EQ(value(0, 0), static_cast<float>(k + 1)) << "the upper left part is its own";
        const auto label = As<float>(samples[k][1]);
        for (size_t c = 0; c < kSamples; ++c) EXPECT_NEAR(label[c], expected[c], 1e-5);
        corners[0].insert({value(0, kWidth - 1)});
        corners[1].insert({value(kHeight - 1, 0)});
        corners[2].insert({value(kHeight - 1, kWidth - 1)});
      }
      for (const auto& seen : corners)
        EXPECT_EQ(seen.size(), static_cast<size_t>(kSamples)) << "partners are permutations";
    }
  }
  EXPECT_GT(points.size(), 8u);
}

TEST(Mosaic, WhatItCannotTakeIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4}).AddLabel(0);
  const auto refusal = [&](const std::string& graph, const std::string& op) {
    const auto plan = MakePlan(
        PipelineText(graph, "[image, label]", absl::StrCat("batch: {graph: [", op, "]}\n")),
        record.fields());
    EXPECT_FALSE(plan.ok()) << op;
    return std::string(plan.status().message());
  };
  EXPECT_THAT(refusal("", "{mosaic: {center: [0.9, 0.1]}}"), HasSubstr("'center'"));
  EXPECT_THAT(refusal("", "{mosaic: {center: [0, 2]}}"), HasSubstr("'center'"));
  EXPECT_THAT(refusal("", "{mosaic: {center: [.nan, 1]}}"), HasSubstr("'center'"));
  EXPECT_THAT(refusal("- one_hot", "mosaic"), HasSubstr("put it before one_hot"));
  EXPECT_THAT(refusal("", "mixup, mosaic"), AllOf(HasSubstr("test.yaml"), HasSubstr("mosaic")));
}

}  // namespace
}  // namespace feedwater::server
