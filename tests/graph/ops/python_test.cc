// python: what goes to a user's program, and what may come back. The program itself is played here;
// real ones are in tests/integration.
#include <gmock/gmock.h>

#include <limits>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

constexpr char kBatchGraph[] = "batch:\n  graph:\n  - python: {name: whole, in: [image, label]}\n";

TEST(Python, OutputsAreLikeTheInputsOfTheirPlaceUnlessTheFirstIsSaid) {
  TestRecord record;
  record.AddPixels(8, 6, 3, PatternPixels(8, 6, 3));
  record.AddLabel(3);
  const auto like =
      MakePlan(PipelineText("- python: {name: mine, in: [image, label]}", "[image, label]"),
               record.fields());
  ASSERT_TRUE(like.ok()) << like.status();
  EXPECT_EQ((*like)->outputs()[0].spec, (TensorSpec{DType::kUInt8, Layout::kHWC, {8, 6, 3}}));
  EXPECT_EQ((*like)->outputs()[1].spec, (TensorSpec{DType::kInt64, Layout::kPlain, {}}));
  const auto said = MakePlan(
      PipelineText("- python: {name: mine, in: [image, label], out: [features, label], dtype: "
                   "float32, shape: [16]}",
                   "[features, label]"),
      record.fields());
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ((*said)->outputs()[0].spec, (TensorSpec{DType::kFloat32, Layout::kPlain, {16}}));
  EXPECT_EQ((*said)->outputs()[1].spec.dtype, DType::kInt64);
}

TEST(Python, WhatItMakesOfAnImageCanBeResized) {
  TestRecord record;
  record.AddEncoded(EncodedImage(20, 30, ".png"));
  const auto result =
      RunGraph("- decode: {}\n- python: {name: mine, in: image}\n- resize: {size: [8, 8]}", record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].size(), 8u * 8 * 3);
}

TEST(Python, ASamplesSeedIsOfItsRecordEpochAndPlaceInTheGraph) {
  TestRecord record;
  record.AddPixels(4, 4, 3, Bytes(48, 0));
  const std::string graph = "- python: {name: mine, in: image}";
  const auto one = RunGraph(graph, record, "[image]", /*sample_id=*/1);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(*RunGraph(graph, record, "[image]", 1), *one);
  EXPECT_NE(*RunGraph(graph, record, "[image]", 2), *one);
  EXPECT_EQ((*one)[0][0], static_cast<uint8_t>(SeedOf(Draws(EpochKey(1, 0), 1, 0))[0]));
}

TEST(Python, WithBatchTrueItMovesToTheBatch) {
  TestRecord record;
  record.AddPixels(4, 4, 3, PatternPixels(4, 4, 3));
  const auto plan = MakePlan(
      PipelineText("- python: {name: whole, in: image, batch: true}", "[image]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->has_batch_ops());
  const auto behind = MakePlan(
      PipelineText("- python: {name: whole, in: image, batch: true}\n- random_horizontal_flip",
                   "[image]"),
      record.fields());
  EXPECT_THAT(std::string(behind.status().message()),
              HasSubstr("comes after an op with batch: true"));
}

TEST(Python, WithoutAProgramItSaysWhoRunsIt) {
  TestRecord record;
  record.AddPixels(4, 4, 3, PatternPixels(4, 4, 3));
  record.AddLabel(1);
  for (const bool is_batch : {false, true}) {
    const auto plan = MakePlan(PipelineText(is_batch ? "" : "- python: {name: mine, in: image}",
                                            "[image, label]", is_batch ? kBatchGraph : ""),
                               record.fields());
    ASSERT_TRUE(plan.ok()) << plan.status();
    SampleWorkspace workspace;
    TestBatch batch(**plan, 1);
    SampleInput input;
    input.record = record.record();
    absl::Status status = (*plan)->Run(input, 0, batch.memory, workspace);
    if (is_batch) {
      ASSERT_TRUE(status.ok()) << status;
      status = (*plan)->FinishBatch(1, 0, {}, batch.memory, workspace);
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("run by your own program"));
  }
}

TEST(Python, MoreAxesThanAProgramCanBeGivenAreRefused) {
  TestRecord record;
  record.AddPixels(4, 4, 3, PatternPixels(4, 4, 3));
  const auto plan = MakePlan(
      PipelineText("- python: {name: mine, in: image, shape: [1, 2, 3, 4, 5, 6, 7]}", "[image]"),
      record.fields());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("at most 6 axes"));
}

TEST(Python, MoreBytesThanACallMayHaveAreRefused) {
  TestRecord record;
  record.AddPixels(4, 4, 3, PatternPixels(4, 4, 3));
  const auto plan =
      MakePlan(PipelineText("- python: {name: mine, in: image, shape: [16777216, 33]}", "[image]"),
               record.fields());
  EXPECT_THAT(
      std::string(plan.status().message()),
      ::testing::AllOf(HasSubstr("test.yaml:4:"), HasSubstr("takes 48 B and makes 528.0 MiB"),
                       HasSubstr("512.0 MiB at most")));
}

// Which a decoder process has to have room for.
TEST(Python, ItsCallsAreAsLargeAsTheirFields) {
  TestRecord pixels;
  pixels.AddPixels(10, 20, 3, PatternPixels(10, 20, 3));
  const auto calls = [](const std::string& graph, const TestRecord& record) {
    const auto plan =
        MakePlan(PipelineText(graph, "[few]", "limits: {max_pixels: 1000}\n"), record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? (*plan)->memory(SampleWay::kWhole).calls : SampleMemory::Calls();
  };
  const std::string small = "- python: {name: b, in: image, out: few, shape: [5]}";
  EXPECT_EQ(calls("- cast: {in: image, out: few, dtype: float32}", pixels).bytes(), 0);
  for (const char* first :
       {"- python: {name: a, in: image, dtype: float64}\n",
        "- apply: {p: 1, ops: [python: {name: a}]}\n- cast: {dtype: float64}\n"}) {
    const auto of_pixels = calls(absl::StrCat(first, small), pixels);
    EXPECT_EQ(of_pixels.inputs, 10 * 20 * 3 * 8) << "those of the second";
    EXPECT_EQ(of_pixels.outputs, first[2] == 'p' ? 10 * 20 * 3 * 8 : 10 * 20 * 3);
    EXPECT_FALSE(of_pixels.are_open);
  }

  TestRecord encoded;
  encoded.AddEncoded(EncodedImage(20, 30, ".png"));
  const auto of_file = calls(absl::StrCat("- decode\n", small), encoded);
  EXPECT_EQ(of_file.inputs, 3000) << "max_pixels";
  EXPECT_EQ(of_file.outputs, 5);
  EXPECT_TRUE(of_file.are_open);
  const auto of_bytes = calls("- python: {name: b, in: data, out: few, shape: [5]}", encoded);
  EXPECT_EQ(of_bytes.inputs, kMostCallBytes) << "of which nothing is known";
}

TEST(Python, ABatchThatNoCallTakesIsRefusedWithTheSizeThatFits) {
  TestRecord record;
  record.AddPixels(4, 4, 3, PatternPixels(4, 4, 3));
  const auto plan = MakePlan(
      PipelineText("- python: {name: whole, in: image, batch: true, shape: [1048528]}", "[image]"),
      record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->CheckBatchSize(512).ok());
  const absl::Status refused = (*plan)->CheckBatchSize(513);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(HasSubstr("op 'python' of the batch"), HasSubstr("513 samples"),
                               HasSubstr("a batch.size of at most 512 fits")));
  EXPECT_FALSE((*plan)->CheckBatchSize(std::numeric_limits<int64_t>::max()).ok());
}

}  // namespace
}  // namespace feedwater::server
