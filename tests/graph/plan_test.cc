// The planner: what it fuses, what it leaves alone, where it puts things; and that none of this
// changes a byte.
#include "server/graph/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "server/graph/element.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kNormalize =
    "- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}";

std::vector<std::string> Steps(const std::string& graph, const std::string& outputs = "[image]",
                               bool fuse = true, const std::string& more = "") {
  const std::vector<FieldSpec> fields = {{"data", kEncodedSpec, ""},
                                         {"label", kLabelSpec, ""},
                                         {"grey", PixelSpec(28, 28, 1), ""},
                                         {"rgb", PixelSpec(32, 32, 3), ""}};
  const auto plan = MakePlan(PipelineText(graph, outputs, more), fields, fuse);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? (*plan)->Describe() : std::vector<std::string>{};
}

TEST(Fusion, TheTrainingPipelineIsOneStep) {
  EXPECT_THAT(
      Steps(absl::StrCat("- decode\n- random_resized_crop: {size: 224}\n- random_horizontal_flip\n",
                         kNormalize)),
      ElementsAre("decode+random_resized_crop+random_horizontal_flip+normalize -> image "
                  "float32[3,224,224] CHW"));
}

TEST(Fusion, TheValidationPipelineIsOneStepAndTheLabelACopy) {
  EXPECT_THAT(Steps(absl::StrCat("- decode\n- resize: {size: 256}\n- center_crop: {size: 224}\n",
                                 kNormalize),
                    "[image, label]"),
              ElementsAre("decode+resize+center_crop+normalize -> image float32[3,224,224] CHW",
                          "copy -> label int64[]"));
}

TEST(Fusion, StoredPixelsAreFusedWithoutDecode) {
  EXPECT_THAT(
      Steps("- random_crop: {in: rgb, out: image, size: 32, padding: 4}\n- "
            "random_horizontal_flip\n- cast\n- layout"),
      ElementsAre("random_crop+random_horizontal_flip+cast+layout -> image float32[3,32,32] CHW"));
}

TEST(Fusion, ASecondResizeBeginsANewStep) {
  EXPECT_THAT(Steps("- decode\n- resize: {size: 256}\n- random_resized_crop: {size: 8}\n- "
                    "random_vertical_flip"),
              ElementsAre("decode+resize -> image uint8[?,?,3] HWC",
                          "random_resized_crop+random_vertical_flip -> image uint8[8,8,3] HWC"));
}

TEST(Fusion, AResizeAfterAFlipOrAPaddingBeginsANewStep) {
  EXPECT_EQ(Steps("- decode\n- random_horizontal_flip\n- resize: {size: [8, 8]}").size(), 2u);
  EXPECT_EQ(Steps("- decode\n- center_crop: {size: 30}\n- resize: {size: [8, 8]}").size(), 2u);
  EXPECT_EQ(Steps("- decode\n- random_crop: {size: 30}\n- resize: {size: [8, 8]}").size(), 1u);
}

TEST(Fusion, PaddingTwiceOrOfNormalizedValuesIsNotFused) {
  EXPECT_EQ(Steps("- decode\n- center_crop: {size: 30}\n- center_crop: {size: 40}").size(), 2u);
  EXPECT_EQ(Steps(absl::StrCat("- decode\n", kNormalize, "\n- center_crop: {size: 40}")).size(),
            2u);
}

TEST(Fusion, CropsAndFlipsMayFollowConversions) {
  EXPECT_EQ(Steps(absl::StrCat("- decode\n- resize: {size: [9, 9]}\n", kNormalize,
                               "\n- random_crop: {size: 8}\n- random_horizontal_flip"))
                .size(),
            1u);
}

TEST(Fusion, WhatWouldRoundTwiceIsNotFused) {
  const std::string head = "- decode\n- resize: {size: [9, 9]}\n";
  EXPECT_EQ(Steps(absl::StrCat(head, kNormalize, "\n- cast: {dtype: float16}")).size(), 1u);
  EXPECT_EQ(Steps(absl::StrCat(head, kNormalize, "\n- cast: {dtype: uint8}")).size(), 2u);
  EXPECT_EQ(
      Steps(absl::StrCat(
                head,
                "- normalize: {mean: [0], std: [1], dtype: bfloat16}\n- cast: {dtype: float32}"))
          .size(),
      2u);
  EXPECT_EQ(Steps(absl::StrCat(head, "- cast: {dtype: bfloat16}\n", kNormalize)).size(), 1u);
  EXPECT_EQ(Steps(absl::StrCat(head, kNormalize, "\n", kNormalize)).size(), 2u);
  EXPECT_EQ(Steps(absl::StrCat(head, "- cast: {dtype: int32}")).size(), 2u);
}

TEST(Fusion, AnOpThatCannotBeFusedStandsAlone) {
  EXPECT_THAT(
      Steps(absl::StrCat("- decode\n- random_resized_crop: {size: 8}\n- color_jitter: {hue: 0.1}\n",
                         kNormalize)),
      ElementsAre("decode+random_resized_crop -> image uint8[8,8,3] HWC",
                  "color_jitter -> image uint8[8,8,3] HWC",
                  "normalize -> image float32[3,8,8] CHW"));
}

TEST(Fusion, TwoViewsOfOneImageDecodeItOnce) {
  EXPECT_THAT(
      Steps(
          "- decode\n- random_resized_crop: {out: a, size: 8}\n- random_horizontal_flip: {in: a}\n"
          "- random_resized_crop: {out: b, size: 8}",
          "[a, b]"),
      ElementsAre("decode -> image uint8[?,?,3] HWC",
                  "random_resized_crop+random_horizontal_flip -> a uint8[8,8,3] HWC",
                  "random_resized_crop -> b uint8[8,8,3] HWC"));
}

TEST(Describe, NamesFastScaleAndWhatKeepsItFromItsResize) {
  EXPECT_THAT(Steps("- decode: {fast_scale: true}\n- random_resized_crop: {size: 8}"),
              ElementsAre("decode(fast_scale)+random_resized_crop -> image uint8[8,8,3] HWC"));
  EXPECT_THAT(
      Steps("- decode: {fast_scale: true}\n- color_jitter: {hue: 0.1}\n- resize: {size: [8, 8]}"),
      ElementsAre("decode(fast_scale without effect: no resize in this step, read by color_jitter) "
                  "-> image uint8[?,?,3] HWC",
                  "color_jitter -> image uint8[?,?,3] HWC", "resize -> image uint8[8,8,3] HWC"));
  EXPECT_THAT(
      Steps("- decode: {fast_scale: true}\n- resize: {out: a, size: [8, 8]}\n"
            "- resize: {in: image, out: b, size: [4, 4]}",
            "[a, b]")[0],
      HasSubstr("decode(fast_scale without effect: no resize in this step, read by resize and "
                "resize) -> image"));
  EXPECT_THAT(Steps("- decode: {fast_scale: true}\n- center_crop: {size: 8}")[0],
              HasSubstr("(fast_scale without effect: no resize in this step)+center_crop"));
}

TEST(Fusion, AFieldThatIsAlsoAnOutputIsWritten) {
  EXPECT_THAT(Steps("- decode\n- center_crop: {size: 8}\n- random_horizontal_flip: {out: mirrored}",
                    "[image, mirrored]"),
              ElementsAre("decode+center_crop -> image uint8[8,8,3] HWC",
                          "random_horizontal_flip -> mirrored uint8[8,8,3] HWC"));
}

TEST(Fusion, OpsThatNobodyNeedsAreLeftOut) {
  EXPECT_THAT(Steps("- decode\n- center_crop: {size: 8}\n- one_hot", "[image]"),
              ElementsAre("decode+center_crop -> image uint8[8,8,3] HWC"));
  EXPECT_THAT(Steps("- decode\n- one_hot", "[label]"), ElementsAre("one_hot -> label float32[10]"));
  EXPECT_THAT(Steps("", "[grey, label]", true,
                    "batch: {graph: [{mixup: {in: [grey, label], out: [x, y]}}]}\n"),
              ElementsAre("copy -> label int64[]", "copy -> grey uint8[28,28,1] HWC"));
}

TEST(Fusion, CanBeSwitchedOff) {
  EXPECT_EQ(
      Steps(absl::StrCat("- decode\n- random_resized_crop: {size: 8}\n- random_horizontal_flip\n",
                         kNormalize),
            "[image]", false)
          .size(),
      4u);
}

// Fused and unfused, for graphs of every shape, images of odd sizes and formats, and many samples.
// Not for decode's fast_scale, which asks for what only the fused ops give (decode_test).
TEST(Fusion, ChangesNoByte) {
  const std::vector<std::string> graphs = {
      absl::StrCat("- decode\n- random_resized_crop: {size: [24, 20]}\n- random_horizontal_flip\n",
                   kNormalize),
      absl::StrCat("- decode\n- random_resized_crop: {size: 16, interpolation: bicubic}\n- "
                   "random_vertical_flip\n",
                   kNormalize),
      "- decode\n- random_resized_crop: {size: 16, interpolation: nearest}\n- "
      "random_horizontal_flip\n- random_vertical_flip",
      "- decode\n- random_resized_crop: {size: 16, interpolation: opencv_linear}",
      absl::StrCat("- decode\n- resize: {size: 40}\n- center_crop: {size: 32}\n", kNormalize),
      absl::StrCat("- decode\n- resize: {size: 20}\n- center_crop: {size: [31, 50]}\n- "
                   "random_horizontal_flip\n",
                   kNormalize),
      "- decode\n- random_horizontal_flip\n- random_crop: {size: [20, 30], pad_if_needed: true, "
      "fill: [1, 2, 3]}\n- random_vertical_flip",
      "- decode\n- random_crop: {size: [60, 70], padding: 80, fill: 9}\n- "
      "random_horizontal_flip\n- layout",
      "- decode\n- random_vertical_flip\n- center_crop: {size: 10}\n- random_horizontal_flip\n- "
      "random_crop: {size: 5}\n- cast\n- random_crop: {size: 3}",
      "- decode\n- center_crop: {size: 50}\n- random_crop: {size: 40}\n- resize: {size: [17, "
      "19]}\n- random_horizontal_flip",
      "- decode: {orientation: exif}\n- resize: {size: [12, 13], interpolation: bicubic}\n- "
      "normalize: {mean: [1], std: [2], dtype: float16, layout: HWC}",
      "- decode\n- center_crop: {size: 33}\n- normalize: {mean: [100], std: [3], dtype: uint8}\n- "
      "random_horizontal_flip",
      "- decode\n- center_crop: {size: 33}\n- cast: {dtype: bfloat16}\n- layout\n- "
      "random_vertical_flip",
      absl::StrCat("- decode\n- center_crop: {size: 33}\n", kNormalize,
                   "\n- random_crop: {size: 12}\n- cast: {dtype: float16}"),
      absl::StrCat("- decode\n- resize: {size: 30, max_size: 45}\n- color_jitter: {hue: 0.2, "
                   "contrast: 0.4}\n"
                   "- center_crop: {size: 28}\n- random_horizontal_flip\n",
                   kNormalize),
  };
  const std::vector<Bytes> files = {EncodedImage(97, 131, ".jpg"), EncodedImage(64, 64, ".jpg"),
                                    EncodedImage(31, 45, ".png"),  EncodedImage(120, 33, ".bmp"),
                                    EncodedImage(1, 1, ".png"),    EncodedImage(17, 1, ".jpg")};
  SampleWorkspace workspace;
  for (const std::string& graph : graphs) {
    for (size_t f = 0; f < files.size(); ++f) {
      TestRecord record;
      record.AddEncoded(files[f]);
      const auto fused = MakePlan(PipelineText(graph, "[image]"), record.fields(), true);
      const auto plain = MakePlan(PipelineText(graph, "[image]"), record.fields(), false);
      ASSERT_TRUE(fused.ok()) << fused.status();
      ASSERT_TRUE(plain.ok()) << plain.status();
      ASSERT_LT((*fused)->Describe().size(), (*plain)->Describe().size() + 1);
      for (int64_t id = 0; id < 12; ++id) {
        const auto a = RunPlan(**fused, record, id), b = RunPlan(**plain, record, id);
        ASSERT_EQ(a.ok(), b.ok()) << graph << "\nfile " << f << " sample " << id << "\n"
                                  << a.status() << "\n"
                                  << b.status();
        if (a.ok()) {
          ASSERT_EQ(*a, *b) << graph << "\nfile " << f << " sample " << id;
        }
      }
    }
  }
}

TEST(Fusion, ChangesNoByteOfStoredPixels) {
  const std::vector<std::string> graphs = {
      "- random_crop: {size: 32, padding: 4}\n- random_horizontal_flip\n- normalize: {mean: [125], "
      "std: [60]}",
      "- random_resized_crop: {size: 20}\n- random_horizontal_flip\n- cast\n- layout",
      "- center_crop: {size: 40}\n- random_vertical_flip\n- cast: {dtype: float16}",
      "- layout\n- random_horizontal_flip\n- random_crop: {size: 7}\n- cast",
  };
  for (int64_t channels : {1, 3}) {
    for (const std::string& graph : graphs) {
      TestRecord record;
      record.AddPixels(32, 32, channels, PatternPixels(32, 32, channels));
      for (int64_t id = 0; id < 30; ++id) {
        const auto fused = RunGraph(graph, record, "[image]", id, true),
                   plain = RunGraph(graph, record, "[image]", id, false);
        ASSERT_TRUE(fused.ok()) << fused.status();
        ASSERT_TRUE(plain.ok()) << plain.status();
        ASSERT_EQ(*fused, *plain) << graph << " sample " << id;
      }
    }
  }
}

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
