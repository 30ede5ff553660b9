// linear_transformation: a pixel, or an image, times a matrix, as torchvision's. Golden values by
// hand.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Floats(const std::string& graph, int64_t height, int64_t width, int64_t channels,
                          const Bytes& pixels) {
  return As<float>(RunOnPixels(graph, height, width, channels, pixels));
}

constexpr char kColours[] =
    "- linear_transformation: {transformation_matrix: [[1, 0, 2], [0, 1, 0], [0, 0.5, 0]], "
    "mean_vector: [10, 20, 30]}";

TEST(LinearTransformation, AMatrixOfChannelsIsForEachPixel) {
  // (1, 2, 4) and (-10, -20, -30) less the mean; a row of the matrix for each channel that goes in.
  const Bytes pixels = {11, 22, 34, 0, 0, 0};
  EXPECT_THAT(Floats(kColours, 1, 2, 3, pixels), ElementsAre(1, 4, 2, -10, -35, -20));
  EXPECT_THAT(Floats(absl::StrCat("- layout\n", kColours), 1, 2, 3, pixels),
              ElementsAre(1, -10, 4, -35, 2, -20));
}

TEST(LinearTransformation, AMatrixOfAllValuesTakesPlanesOneAfterTheOther) {
  // Two pixels of three channels: the values in planes' order are 1, 4, 2, 5, 3, 6. The matrix
  // takes each to the next place.
  std::string rows;
  for (int row = 0; row < 6; ++row) {
    absl::StrAppend(&rows, row == 0 ? "" : ", ", "[");
    for (int column = 0; column < 6; ++column)
      absl::StrAppend(&rows, column == 0 ? "" : ", ", column == (row + 1) % 6 ? 1 : 0);
    absl::StrAppend(&rows, "]");
  }
  const std::string graph = absl::StrCat("- linear_transformation: {transformation_matrix: [", rows,
                                         "], mean_vector: [0, 0, 0, 0, 0, 0]}");
  const Bytes pixels = {1, 2, 3, 4, 5, 6};
  EXPECT_THAT(Floats(absl::StrCat("- layout\n", graph), 1, 2, 3, pixels),
              ElementsAre(6, 1, 4, 2, 5, 3));
  EXPECT_THAT(Floats(graph, 1, 2, 3, pixels), ElementsAre(6, 4, 5, 1, 2, 3));
}

TEST(LinearTransformation, GreyImagesHaveAMatrixOfOne) {
  EXPECT_THAT(Floats("- linear_transformation: {transformation_matrix: [[-2]], mean_vector: [1]}",
                     1, 2, 1, {1, 4}),
              ElementsAre(0, -6));
}

TEST(LinearTransformation, TheClockIsLookedAtWhileValuesAreConverted) {
  TestRecord record;
  record.AddPixels(300, 300, 3, PatternPixels(300, 300, 3));
  const auto plan = MakePlan(PipelineText(kColours, "[image]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  TestBatch batch(**plan, 1);
  SampleInput input;
  input.record = record.record();
  ASSERT_TRUE((*plan)->Run(input, 0, batch.memory, workspace).ok());
  // For each 16,384 of 270,000 values, and of 90,000 pixels.
  EXPECT_GE(workspace.clock().beats(), 16u + 5u);
}

TEST(LinearTransformation, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(1, 2, 3, {1, 2, 3, 4, 5, 6});
  std::string many;
  for (int i = 0; i < 65; ++i) absl::StrAppend(&many, i == 0 ? "" : ", ", "[1]");
  const std::pair<std::string, const char*> kBad[] = {
      {"transformation_matrix: [[1, 0], [0, 1]], mean_vector: [0]",
       "as many numbers as 'transformation_matrix' has rows, 2, not 1"},
      {"transformation_matrix: [[1, 0], [0, 1]], mean_vector: [0, 0]",
       "a matrix of 2 rows, but the image has 3 channels and 6 values"},
      {"transformation_matrix: [[1, 0], [0]], mean_vector: [0, 0]", "rows of 2 numbers"},
      {"transformation_matrix: [1, 0, 0, 1], mean_vector: [0, 0]", "not a flat list"},
      {"transformation_matrix: [], mean_vector: []", "'transformation_matrix'"},
      {"transformation_matrix: 3, mean_vector: [0]", "'transformation_matrix'"},
      {"transformation_matrix: [[.nan]], mean_vector: [0]", "'transformation_matrix'"},
      {"transformation_matrix: [[1e300]], mean_vector: [0]", "'transformation_matrix'"},
      {absl::StrCat("transformation_matrix: [", many, "], mean_vector: [0]"),
       "at most 64 rows, not 65"}};
  for (const auto& [params, text] : kBad) {
    const auto refused = RunGraph(absl::StrCat("- linear_transformation: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("test.yaml:4:"), HasSubstr(text)));
  }
}

}  // namespace
}  // namespace feedwater::server
