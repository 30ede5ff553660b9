// Outputs whose number of rows differs from sample to sample: made side by side, packed when the
// batch is whole, or padded.
#include "server/graph/varying_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using graph_testing::Bytes;
using graph_testing::MakePlan;
using graph_testing::PipelineText;
using graph_testing::TestBatch;
using graph_testing::TestRecord;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TensorSpec kBoxes{DType::kFloat32, Layout::kPlain, {-1, 2}};
const TensorSpec kTags{DType::kInt16, Layout::kPlain, {-1}};

template <typename T>
Bytes BytesOf(const std::vector<T>& numbers) {
  Bytes bytes(numbers.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// A record of so many boxes and tags, whose numbers count from `first` on.
TestRecord Sample(int64_t boxes, int64_t tags, int first) {
  std::vector<float> corners;
  std::vector<int16_t> numbers;
  for (int64_t i = 0; i < 2 * boxes; ++i) corners.push_back(static_cast<float>(first + i));
  for (int64_t i = 0; i < tags; ++i) numbers.push_back(static_cast<int16_t>(first + i));
  TestRecord record;
  record.Add("boxes", kBoxes, kBoxes.WithRows(boxes), BytesOf(corners));
  record.Add("tags", kTags, kTags.WithRows(tags), BytesOf(numbers));
  return record;
}

struct Made {
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<TestBatch> batch;
  SampleWorkspace workspace;

  Made(const std::string& outputs, int64_t size, const std::string& graph = "  []") {
    auto made = MakePlan(PipelineText(graph, outputs), Sample(0, 0, 0).fields());
    EXPECT_TRUE(made.ok()) << made.status();
    plan = *made;
    batch = std::make_unique<TestBatch>(*plan, size);
  }
  absl::Status Run(TestRecord record, int64_t k) {
    SampleInput input;
    input.record = record.record();
    input.sample_id = k;
    return plan->Run(input, k, batch->memory, workspace);
  }
  absl::Status Finish(int64_t samples) {
    return plan->FinishBatch(samples, 0, {}, batch->memory, workspace);
  }
  std::vector<int64_t> Offsets(size_t output) const {
    const int64_t* at = batch->memory.offsets[output];
    return {at, at + batch->memory.batch_size + 1};
  }
  template <typename T>
  std::vector<T> Numbers(size_t output, size_t count) const {
    std::vector<T> numbers(count);
    std::memcpy(numbers.data(), batch->memory.outputs[output], count * sizeof(T));
    return numbers;
  }
};

TEST(VaryingRows, SamplesAreMadeInAnyOrderAndPackedInTheirs) {
  Made made("[{boxes: {max_rows: 3}}, tags, boxes_length]", 4);
  EXPECT_EQ(made.plan->outputs()[0].max_rows, 3);
  EXPECT_EQ(made.plan->outputs()[1].max_rows, 8192);  // 16 KiB of two bytes each
  EXPECT_EQ(made.plan->outputs()[2].spec.ToString(), "int64[]");
  EXPECT_TRUE(made.plan->finishes_batches());
  ASSERT_TRUE(made.Run(Sample(3, 0, 300), 2).ok());
  ASSERT_TRUE(made.Run(Sample(0, 5, 100), 0).ok());
  ASSERT_TRUE(made.Run(Sample(2, 1, 200), 1).ok());
  ASSERT_TRUE(made.Finish(3).ok());
  EXPECT_THAT(made.Offsets(0), ElementsAre(0, 0, 2, 5, 5)) << "a batch of three in room for four";
  EXPECT_THAT(made.Numbers<float>(0, 10),
              ElementsAre(200, 201, 202, 203, 300, 301, 302, 303, 304, 305));
  EXPECT_THAT(made.Offsets(1), ElementsAre(0, 5, 6, 6, 6));
  EXPECT_THAT(made.Numbers<int16_t>(1, 6), ElementsAre(100, 101, 102, 103, 104, 200));
  EXPECT_THAT(made.Numbers<int64_t>(2, 3), ElementsAre(0, 2, 3));
  EXPECT_TRUE(made.batch->GuardsHold());
}

TEST(VaryingRows, ABatchWithoutSamplesHasOffsetsThatSaySo) {
  Made made("[tags]", 2);
  ASSERT_TRUE(made.Finish(0).ok());
  EXPECT_THAT(made.Offsets(0), ElementsAre(0, 0, 0));
}

TEST(VaryingRows, MoreRowsThanThereIsRoomForAreTheSamplesErrorWithTheCure) {
  Made made("[{boxes: {max_rows: 3}}, {tags: {pad_to: 2}}]", 2);
  ASSERT_TRUE(made.Run(Sample(3, 2, 1), 1).ok());
  const absl::Status boxes = made.Run(Sample(4, 2, 1), 0);
  EXPECT_EQ(boxes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(boxes.message()), HasSubstr("'boxes' has 4 rows"));
  EXPECT_THAT(std::string(boxes.message()), HasSubstr("{boxes: {max_rows: 4}}"));
  const absl::Status tags = made.Run(Sample(3, 3, 1), 0);
  EXPECT_THAT(std::string(tags.message()), HasSubstr("{tags: {pad_to: 3}}"));
  // The neighbour was not touched.
  ASSERT_TRUE(made.Run(Sample(0, 0, 1), 0).ok());
  ASSERT_TRUE(made.Finish(2).ok());
  EXPECT_THAT(made.Numbers<float>(0, 6), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_TRUE(made.batch->GuardsHold());
}

TEST(VaryingRows, PaddingFillsWhatIsBehindTheRows) {
  Made made("[{boxes: {pad_to: 2, pad_value: -1}}, {tags: {pad_to: 3, pad_value: 7}}, tags_length]",
            2);
  EXPECT_EQ(made.plan->outputs()[0].spec.ToString(), "float32[2,2]");
  EXPECT_FALSE(made.plan->finishes_batches());
  ASSERT_TRUE(made.Run(Sample(1, 3, 10), 0).ok());
  ASSERT_TRUE(made.Run(Sample(0, 1, 20), 1).ok());
  EXPECT_THAT(made.Numbers<float>(0, 8), ElementsAre(10, 11, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(made.Numbers<int16_t>(1, 6), ElementsAre(10, 11, 12, 20, 7, 7));
  EXPECT_THAT(made.Numbers<int64_t>(2, 2), ElementsAre(3, 1));
  EXPECT_TRUE(made.batch->GuardsHold());
}

TEST(VaryingRows, OpsWriteThemStraightIntoTheBatch) {
  Made made("[{boxes: {max_rows: 2}}, {tags: {pad_to: 2}}]", 2,
            "  - cast: {in: boxes, dtype: float64}\n  - cast: {in: tags, dtype: uint8}");
  ASSERT_TRUE(made.Run(Sample(1, 1, 5), 0).ok());
  ASSERT_TRUE(made.Run(Sample(2, 2, 6), 1).ok());
  EXPECT_EQ(made.Run(Sample(3, 1, 5), 1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(made.Run(Sample(2, 2, 6), 1).ok());
  ASSERT_TRUE(made.Finish(2).ok());
  EXPECT_THAT(made.Numbers<double>(0, 6), ElementsAre(5, 6, 6, 7, 8, 9));
  EXPECT_THAT(made.Numbers<uint8_t>(1, 4), ElementsAre(5, 0, 6, 7));
  EXPECT_TRUE(made.batch->GuardsHold());
}

TEST(VaryingRows, ABlankSampleHasNone) {
  Made made("[boxes, {tags: {pad_to: 2, pad_value: 9}}, boxes_length, sample_id]", 2);
  ASSERT_TRUE(made.Run(Sample(1, 2, 5), 0).ok());
  SampleInput input;
  input.sample_id = 77;
  made.plan->RunBlank(input, 1, made.batch->memory);
  ASSERT_TRUE(made.Finish(2).ok());
  EXPECT_THAT(made.Offsets(0), ElementsAre(0, 1, 1));
  EXPECT_THAT(made.Numbers<int16_t>(1, 4), ElementsAre(5, 6, 9, 9));
  EXPECT_THAT(made.Numbers<int64_t>(2, 2), ElementsAre(1, 0));
  EXPECT_THAT(made.Numbers<int64_t>(3, 2), ElementsAre(0, 77));
}

TEST(VaryingRows, WhatAnotherProcessMadeIsCopiedAndItsNumberOfRowsChecked) {
  constexpr char kOutputs[] = "[{boxes: {max_rows: 3}}, {tags: {pad_to: 2}}, boxes_length]";
  Made elsewhere(kOutputs, 1), here(kOutputs, 2);
  ASSERT_TRUE(elsewhere.Run(Sample(2, 1, 5), 0).ok());
  const auto copy = [&](int64_t k) {
    return here.plan->CopySample(SampleInput(), elsewhere.batch->memory, 0, here.batch->memory, k);
  };
  ASSERT_TRUE(copy(0).ok());
  ASSERT_TRUE(copy(1).ok());
  for (int64_t rows : {int64_t{-1}, int64_t{4}, INT64_MIN, INT64_MAX}) {
    elsewhere.batch->memory.offsets[0][1] = rows;
    EXPECT_EQ(copy(1).code(), absl::StatusCode::kDataLoss) << rows;
  }
  ASSERT_TRUE(here.Finish(2).ok());
  EXPECT_THAT(here.Offsets(0), ElementsAre(0, 2, 4));
  EXPECT_THAT(here.Numbers<float>(0, 8), ElementsAre(5, 6, 7, 8, 5, 6, 7, 8));
  EXPECT_THAT(here.Numbers<int16_t>(1, 4), ElementsAre(5, 0, 5, 0));
  EXPECT_TRUE(here.batch->GuardsHold());
}

TEST(VaryingRows, TheBytesOfAFileMayBeAnOutputWhereTheirNumberIsBounded) {
  TestRecord record;
  record.AddEncoded({1, 2, 3});
  const auto plan =
      MakePlan(PipelineText("  []", "[{data: {max_rows: 10}}, data_length]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->outputs()[0].ShapeText(), "uint8[?] encoded, at most 10 rows");
  EXPECT_FALSE((*plan)->OnlyDecoded(0)) << "coefficients must not stand in for the file";
}

TEST(VaryingRows, ThePrefixKeepsWhatLengthsAreOf) {
  Made made("[boxes_length]", 1);
  ASSERT_EQ(made.plan->prefix().fields.size(), 1u);
  EXPECT_EQ(made.plan->prefix().fields[0].name, "boxes");
  TestRecord record = Sample(3, 0, 1);
  SampleInput input;
  input.record = record.record();
  Record kept;
  ASSERT_TRUE(made.plan->RunPrefix(input, 1 << 20, made.workspace, &kept).ok());
  input.record = &kept;
  ASSERT_TRUE(made.plan->RunFromPrefix(input, 0, made.batch->memory, made.workspace).ok());
  EXPECT_THAT(made.Numbers<int64_t>(0, 1), ElementsAre(3));
}

}  // namespace
}  // namespace feedwater::server
