// The plan: where it puts things, in which order outputs stand, and that a sample's bytes depend on
// nothing else. fusion_test.cc has what it fuses.
#include "server/graph/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Plan, OutputsStandInTheOrderOfTheFileWithFeedwatersOwnFields) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {5, 6}).AddLabel(3);
  const auto plan =
      MakePlan(PipelineText("", "[is_real, label, position, image, sample_id]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> names;
  for (const FieldSpec& field : (*plan)->outputs())
    names.push_back(field.name + " " + field.spec.ToString());
  EXPECT_THAT(names, ElementsAre("is_real bool[]", "label int64[]", "position int64[]",
                                 "image uint8[1,2,1] HWC", "sample_id int64[]"));
  const auto result = RunPlan(**plan, record, 42);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0], ElementsAre(1));
  EXPECT_THAT(As<int64_t>((*result)[1]), ElementsAre(3));
  EXPECT_THAT(As<int64_t>((*result)[2]), ElementsAre(1042));
  EXPECT_THAT((*result)[3], ElementsAre(5, 6));
  EXPECT_THAT(As<int64_t>((*result)[4]), ElementsAre(42));
}

TEST(Plan, AStandInTellsWhoseItsPlaceIsAndABlankIsZeros) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {5, 6}).AddLabel(3);
  // The label is mixed by a batch op, and so lies in staging memory.
  const auto plan = MakePlan(
      PipelineText(
          "  - one_hot: {num_classes: 10}\n  - normalize: {mean: [0], std: [1], dtype: uint8}",
          "[sample_id, position, is_real, image]",
          "batch: {graph: [{mixup: {in: [image, label], alpha: 0.2}}]}\n"),
      record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  TestBatch batch(**plan, 3);
  SampleInput input;
  input.record = record.record();
  input.sample_id = 8;
  input.stands_for = 7;
  input.position = 70;
  input.is_real = false;
  ASSERT_TRUE((*plan)->Run(input, 0, batch.memory, workspace).ok());
  ASSERT_TRUE((*plan)->Run(input, 2, batch.memory, workspace).ok());
  (*plan)->RunBlank(input, 1, batch.memory);
  for (int64_t k : {0, 1, 2}) {
    EXPECT_THAT(As<int64_t>(batch.Output(0, k)), ElementsAre(7));
    EXPECT_THAT(As<int64_t>(batch.Output(1, k)), ElementsAre(70));
    EXPECT_THAT(batch.Output(2, k), ElementsAre(0));
  }
  EXPECT_THAT(batch.Output(3, 0), ElementsAre(5, 6));
  EXPECT_THAT(batch.Output(3, 1), ElementsAre(0, 0));
  EXPECT_EQ(batch.Output(3, 0), batch.Output(3, 2));
  EXPECT_TRUE(batch.GuardsHold());
}

TEST(Plan, EverySampleGoesToItsOwnPlaceAndNowhereElse) {
  TestRecord record;
  record.AddEncoded(EncodedImage(40, 50, ".jpg")).AddLabel(1);
  const auto plan =
      MakePlan(PipelineText("- decode\n- random_resized_crop: {size: 7}", "[image, label]"),
               record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  TestBatch batch(**plan, 5);
  std::vector<std::vector<Bytes>> alone;
  for (int64_t k : {3, 0, 4, 1, 2}) {
    SampleInput input;
    input.record = record.record();
    input.sample_id = k;
    input.key = EpochKey(1, 0);
    ASSERT_TRUE((*plan)->Run(input, k, batch.memory, workspace).ok());
  }
  EXPECT_TRUE(batch.GuardsHold());
  for (int64_t k = 0; k < 5; ++k) EXPECT_EQ(batch.Sample(k), *RunPlan(**plan, record, k)) << k;
}

TEST(Plan, DrawsDependOnSampleSeedAndPlaceInTheGraphAlone) {
  TestRecord record;
  record.AddPixels(16, 16, 1, PatternPixels(16, 16, 1));
  const auto plan = MakePlan(PipelineText("- random_crop: {size: 4}", "[image]"), record.fields());
  const auto shifted = MakePlan(
      PipelineText("- one_hot: {in: sample_id, out: x, num_classes: 100}\n- random_crop: {size: 4}",
                   "[image]"),
      record.fields());
  ASSERT_TRUE(plan.ok() && shifted.ok());
  int same_by_seed = 0, same_by_sample = 0, same_by_place = 0;
  for (int64_t id = 0; id < 50; ++id) {
    const auto first = *RunPlan(**plan, record, id, 1);
    EXPECT_EQ(first, *RunPlan(**plan, record, id, 1));
    same_by_seed += first == *RunPlan(**plan, record, id, 2);
    same_by_sample += first == *RunPlan(**plan, record, id + 50, 1);
    same_by_place += first == *RunPlan(**shifted, record, id, 1);  // the dead op keeps its number
  }
  EXPECT_LT(same_by_seed, 8);
  EXPECT_LT(same_by_sample, 8);
  EXPECT_LT(same_by_place, 8);
}

TEST(Plan, AValueMayBeReadAfterItsNameIsWrittenAgain) {
  // `image` is replaced, and the copy made before keeps the old pixels.
  TestRecord record;
  record.AddPixels(1, 2, 1, {1, 2});
  const auto result =
      RunGraph("- cast: {out: before, dtype: uint8}\n- random_horizontal_flip: {p: 1}", record,
               "[before, image]");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0], ElementsAre(1, 2));
  EXPECT_THAT((*result)[1], ElementsAre(2, 1));
}

TEST(Plan, ARecordThatIsNotAsAnnouncedIsRefusedBeforeItIsCopied) {
  const TensorSpec announced = PixelSpec(1, 2, 1);
  for (const TensorSpec& given :
       {PixelSpec(100, 100, 1), TensorSpec{DType::kFloat64, Layout::kHWC, {1, 2, 1}},
        TensorSpec{DType::kUInt8, Layout::kPlain, {2}}}) {
    TestRecord record;
    record.Add("image", announced, given, Bytes(100 * 100 * 8));
    const auto result = RunGraph("", record);
    ASSERT_FALSE(result.ok());
    EXPECT_TRUE(absl::IsDataLoss(result.status())) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("'image'"));
  }
  TestRecord record;
  record.AddPixels(1, 2, 1, {1, 2});
  const auto plan = MakePlan(PipelineText("", "[image]"), record.fields());
  ASSERT_TRUE(plan.ok());
  SampleWorkspace workspace;
  TestBatch batch(**plan, 1);
  Record empty;
  SampleInput input;
  input.record = &empty;
  EXPECT_TRUE(absl::IsDataLoss((*plan)->Run(input, 0, batch.memory, workspace)));
}

TEST(Plan, StagingIsThereOnlyForFieldsThatOnlyBatchOpsRead) {
  const std::vector<FieldSpec> fields = {{"image", PixelSpec(4, 4, 1), ""},
                                         {"label", kLabelSpec, ""}};
  const auto staging = [&](const std::string& outputs, const std::string& op) {
    const auto plan = MakePlan(PipelineText("", outputs, "batch: {graph: [" + op + "]}\n"), fields);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? (*plan)->staging_bytes_per_sample() : -1;
  };
  EXPECT_EQ(staging("[image, label]", ""), 0);
  EXPECT_EQ(staging("[image, label]", "mixup"), 64);  // the number; the image is mixed in the slot
  EXPECT_EQ(staging("[label]", "mixup"), 128);        // the image has no slot
  EXPECT_EQ(staging("[image, label, x, y]", "{mixup: {out: [x, y]}}"), 0);  // everything has
}

TEST(Plan, TheMixedAndTheUnmixedImageMayBothBeOutputs) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {10, 20}).AddLabel(1);
  const auto plan = MakePlan(
      PipelineText("", "[image, label, x, y]", "batch: {graph: [{mixup: {out: [x, y]}}]}\n"),
      record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  TestBatch batch(**plan, 2);
  for (int64_t k = 0; k < 2; ++k) {
    TestRecord other;
    other.AddPixels(1, 2, 1, {static_cast<uint8_t>(10 + 100 * k), 20}).AddLabel(k);
    SampleInput input;
    input.record = other.record();
    ASSERT_TRUE((*plan)->Run(input, k, batch.memory, workspace).ok());
  }
  ASSERT_TRUE((*plan)->FinishBatch(2, 0, {}, batch.memory, workspace).ok());
  EXPECT_THAT(batch.Output(0, 0), ElementsAre(10, 20));
  EXPECT_THAT(batch.Output(0, 1), ElementsAre(110, 20));
  EXPECT_THAT(As<int64_t>(batch.Output(1, 1)), ElementsAre(1));
  EXPECT_EQ(As<float>(batch.Output(3, 0)).size(), 10u);
}

// As `describe --cost` leaves out one op after the other and compares what is the same otherwise.
TEST(Plan, ABatchOpBehindOneThatIsLeftOutDrawsAsBeforeWhenItKeepsItsPlace) {
  constexpr int64_t kSamples = 8;
  std::vector<TestRecord> records(kSamples);
  for (int64_t k = 0; k < kSamples; ++k)
    records[k].AddPixels(8, 8, 1, Bytes(64, static_cast<uint8_t>(k + 1))).AddLabel(k);
  const auto images = [&](const PipelineSpec& spec) {
    std::vector<Bytes> made;
    const auto plan = Plan::Create(spec, records[0].fields(), kSamples);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return made;
    SampleWorkspace workspace;
    TestBatch batch(**plan, kSamples);
    for (int64_t k = 0; k < kSamples; ++k) {
      SampleInput input;
      input.record = records[k].record();
      EXPECT_TRUE((*plan)->Run(input, k, batch.memory, workspace).ok());
    }
    for (uint64_t number = 0; number < 4; ++number) {
      EXPECT_TRUE(
          (*plan)->FinishBatch(kSamples, number, EpochKey(2, 0), batch.memory, workspace).ok());
      for (int64_t k = 0; k < kSamples; ++k) made.push_back(batch.Output(0, k));
    }
    return made;
  };
  // The first one writes fields that nobody reads, so that the image is the second one's alone.
  const auto spec = ParsePipeline(
      PipelineText("", "[image, label]",
                   "batch: {graph: [{mixup: {out: [x, y]}}, {cutmix: {alpha: 1.0}}]}\n"),
      "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  PipelineSpec renumbered = *spec;
  renumbered.batch_graph.erase(renumbered.batch_graph.begin());
  PipelineSpec kept = renumbered;
  kept.batch_graph[0].batch_place = 1;
  const std::vector<Bytes> all = images(*spec);
  EXPECT_EQ(images(kept), all);
  EXPECT_NE(images(renumbered), all);
}

// The dataset's image may have any name, such as that of a value without one.
TEST(Plan, AFieldThatIsMissingForItIsDecodedByTheNameThatItHas) {
  const TensorSpec file{DType::kUInt8, Layout::kEncoded, {-1}};
  const auto refusal = [](const std::string& graph, const std::vector<FieldSpec>& fields,
                          const std::string& outputs = "[image]") {
    return std::string(MakePlan(PipelineText(graph, outputs), fields).status().message());
  };
  const std::vector<FieldSpec> one = {{"field0", file, ""}, {"field1", kLabelSpec, ""}};
  EXPECT_THAT(refusal("- decode", one), HasSubstr("; cure: `decode: {in: field0}`"));
  EXPECT_THAT(refusal("- resize: {size: [8, 8]}", one),
              HasSubstr("; `decode: {in: field0, out: image}` before this op makes it"));
  EXPECT_THAT(refusal("- one_hot: {in: lable, num_classes: 3}", one),
              ::testing::Not(HasSubstr("decode:")));
  EXPECT_THAT(refusal("", one, "[field0]"),
              HasSubstr("decode it (`decode: {in: field0}`), or, where its bytes are wanted"));
  const std::vector<FieldSpec> two = {{"left", file, ""}, {"right", file, ""}};
  EXPECT_THAT(refusal("- decode", two), ::testing::Not(HasSubstr("cure")));
}

TEST(Plan, ValidateNeedsNoData) {
  const auto spec = ParsePipeline(PipelineText("- decode\n- center_crop: {size: 4}",
                                               "[image, label]", "batch: {graph: [mixup]}\n"),
                                  "p.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const absl::Status valid = Plan::Validate(*spec);
  EXPECT_TRUE(valid.ok()) << valid;
  const auto wrong = ParsePipeline(PipelineText("- decode: {in: dta}", "[label]"), "p.yaml");
  ASSERT_TRUE(wrong.ok());
  EXPECT_THAT(std::string(Plan::Validate(*wrong).message()), HasSubstr("p.yaml:4:"));
}

// Workers know by it for which plan's samples their buffers were looked at.
TEST(Plan, TheIdOfOneThatIsGoneIsNeverAnothers) {
  const auto make = [] {
    const auto plan = MakePlan(PipelineText("- decode\n- resize: {size: [8, 8]}", "[image]"),
                               {{"data", kEncodedSpec, ""}});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  };
  std::set<uint64_t> ids;
  std::set<const Plan*> addresses;
  constexpr size_t kPlans = 1000;
  for (size_t i = 0; i < kPlans; ++i) {
    const auto plan = make();
    EXPECT_TRUE(ids.insert(plan->id()).second);
    addresses.insert(plan.get());
    if (addresses.size() <= i) return;  // it lies where another one lay
  }
  GTEST_SKIP() << "no address was used twice";
}

TEST(Plan, OneWorkspaceServesManyPlansAndSizes) {
  SampleWorkspace workspace;
  for (int round = 0; round < 3; ++round) {
    for (int size : {3, 200, 20}) {
      TestRecord record;
      record.AddEncoded(EncodedImage(size, size + 1, ".png"));
      for (const char* graph : {"- decode\n- color_jitter: {hue: 0.1}\n- center_crop: {size: 9}",
                                "- decode\n- center_crop: {size: 9}"}) {
        const auto plan = MakePlan(PipelineText(graph, "[image]"), record.fields());
        ASSERT_TRUE(plan.ok()) << plan.status();
        TestBatch batch(**plan, 1);
        SampleInput input;
        input.record = record.record();
        input.sample_id = 7;
        input.key = EpochKey(1, 0);
        ASSERT_TRUE((*plan)->Run(input, 0, batch.memory, workspace).ok());
        EXPECT_EQ(batch.Sample(0), *RunPlan(**plan, record)) << graph << " " << size;
      }
    }
  }
}

}  // namespace
}  // namespace feedwater::server
