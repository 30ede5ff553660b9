// mixup: image and label of two samples by one weight, which is Beta distributed; partners are a
// permutation.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "server/graph/batch_mixing.h"
#include "server/graph/element.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A batch of `samples` images of 2x2 whose pixels are 10 k + channel place, with label k % 3,
// through `batch_ops`.
struct Mixed {
  std::shared_ptr<const Plan> plan;
  std::vector<Bytes> images, labels;
  float weight = 0;
  std::vector<int64_t> partner;
};

Mixed Mix(const std::string& graph, const std::string& batch_op, int64_t samples, double alpha,
          uint64_t global_batch = 5) {
  Mixed mixed;
  std::vector<TestRecord> records(static_cast<size_t>(samples));
  for (int64_t k = 0; k < samples; ++k) {
    records[static_cast<size_t>(k)]
        .AddPixels(1, 2, 1, {static_cast<uint8_t>(10 * k), static_cast<uint8_t>(10 * k + 5)})
        .AddLabel(k % 3);
  }
  auto plan =
      MakePlan(PipelineText(graph, "[image, label]", "batch: {graph: [" + batch_op + "]}\n"),
               records[0].fields(), true, 3);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return mixed;
  mixed.plan = *plan;
  SampleWorkspace workspace;
  TestBatch batch(**plan, samples);
  const PhiloxKey key = EpochKey(11, 0);
  for (int64_t k = 0; k < samples; ++k) {
    SampleInput input;
    input.record = records[static_cast<size_t>(k)].record();
    input.key = key;
    EXPECT_TRUE((*plan)->Run(input, k, batch.memory, workspace).ok());
  }
  const absl::Status finished =
      (*plan)->FinishBatch(samples, global_batch, key, batch.memory, workspace);
  EXPECT_TRUE(finished.ok()) << finished;
  EXPECT_TRUE(batch.GuardsHold());
  for (int64_t k = 0; k < samples; ++k) {
    mixed.images.push_back(batch.Output(0, k));
    mixed.labels.push_back(batch.Output(1, k));
  }
  // The draws that the op makes, made again.
  Draws draws(key, global_batch, kBatchInstance);
  mixed.weight = static_cast<float>(DrawBeta(alpha, draws));
  mixed.partner.resize(static_cast<size_t>(samples));
  DrawPermutation(absl::MakeSpan(mixed.partner), draws);
  return mixed;
}

TEST(Mixup, EverySampleIsMixedWithItsPartnersOriginal) {
  for (const char* graph : {"- cast: {dtype: float32}", "- cast: {dtype: float32}\n- one_hot"}) {
    const Mixed mixed = Mix(graph, "{mixup: {alpha: 0.7}}", 9, 0.7);
    ASSERT_EQ(mixed.images.size(), 9u);
    const float weight = mixed.weight, rest = 1.0f - weight;
    for (size_t k = 0; k < 9; ++k) {
      const size_t p = static_cast<size_t>(mixed.partner[k]);
      EXPECT_THAT(As<float>(mixed.images[k]),
                  ElementsAre(weight * (10.0f * k) + rest * (10.0f * p),
                              weight * (10.0f * k + 5) + rest * (10.0f * p + 5)));
      std::vector<float> label(3);
      label[k % 3] += weight;
      label[p % 3] += rest;
      EXPECT_EQ(As<float>(mixed.labels[k]), label) << k;
    }
  }
}

TEST(Mixup, ABatchOfOneStaysItselfUpToRounding) {
  const Mixed mixed = Mix("- cast: {dtype: float32}", "{mixup: {}}", 1, 1.0);
  ASSERT_EQ(mixed.labels.size(), 1u);
  EXPECT_FLOAT_EQ(As<float>(mixed.labels[0])[0], 1);
  EXPECT_FLOAT_EQ(As<float>(mixed.images[0])[1], 5);
}

TEST(Mixup, BytesAndHalvesAreMixedInFloat) {
  const Mixed bytes = Mix("", "{mixup: {alpha: 2}}", 5, 2.0);
  const Mixed halves = Mix("- cast: {dtype: float16}", "{mixup: {alpha: 2}}", 5, 2.0);
  ASSERT_EQ(bytes.images.size(), 5u);
  ASSERT_EQ(halves.images.size(), 5u);
  for (size_t k = 0; k < 5; ++k) {
    const float expected =
        bytes.weight * (10.0f * k) + (1.0f - bytes.weight) * (10.0f * bytes.partner[k]);
    EXPECT_EQ(bytes.images[k][0], static_cast<uint8_t>(std::nearbyint(expected)));
    EXPECT_EQ(As<uint16_t>(halves.images[k])[0], FloatToHalf(expected));
  }
}

TEST(Mixup, TheLabelsSpecIsAVectorAndItsNumberIsStaged) {
  const Mixed mixed = Mix("- cast: {dtype: float32}", "{mixup: {}}", 2, 1.0);
  ASSERT_NE(mixed.plan, nullptr);
  EXPECT_EQ(mixed.plan->outputs()[1].spec.ToString(), "float32[3]");
  EXPECT_GE(mixed.plan->staging_bytes_per_sample(), 8);
  EXPECT_TRUE(mixed.plan->has_batch_ops());
}

TEST(Mixup, AnotherBatchNumberMixesOtherwise) {
  EXPECT_NE(Mix("", "{mixup: {}}", 8, 1.0, 1).images, Mix("", "{mixup: {}}", 8, 1.0, 2).images);
}

TEST(Mixup, TwoBatchOpsFollowEachOther) {
  const Mixed once = Mix("- cast: {dtype: float32}", "{mixup: {}}", 6, 1.0);
  const Mixed twice = Mix("- cast: {dtype: float32}", "{mixup: {}}, {mixup: {}}", 6, 1.0);
  ASSERT_EQ(twice.labels.size(), 6u);
  EXPECT_NE(once.images, twice.images);
  for (const Bytes& label : twice.labels) {
    const auto weights = As<float>(label);
    EXPECT_NEAR(weights[0] + weights[1] + weights[2], 1, 1e-6);
  }
}

TEST(Mixup, TheWeightIsBetaDistributed) {
  // Mean 1/2 and variance 1 / (4 (2 alpha + 1)), with five standard deviations of room.
  for (double alpha : {0.001, 0.2, 1.0, 5.0, 300.0}) {
    constexpr int kDraws = 20000;
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      Draws draws(EpochKey(5, 0), static_cast<uint64_t>(i), kBatchInstance);
      const double weight = DrawBeta(alpha, draws);
      ASSERT_GE(weight, 0);
      ASSERT_LE(weight, 1);
      sum += weight;
      squares += (weight - 0.5) * (weight - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << "alpha " << alpha;
    EXPECT_NEAR(squares / kDraws / variance, 1, 0.06) << "alpha " << alpha;
  }
}

TEST(Mixup, PartnersAreAPermutation) {
  std::vector<int64_t> permutation(100), sorted(100);
  Draws draws(EpochKey(5, 0), 1, kBatchInstance);
  DrawPermutation(absl::MakeSpan(permutation), draws);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(permutation, sorted);
  std::sort(permutation.begin(), permutation.end());
  EXPECT_EQ(permutation, sorted);
}

// Of every op that mixes labels, and whichever way the sample is made; also of a label that an op
// has written.
TEST(Mixup, AClassOutOfRangeIsItsOwnSamplesFault) {
  for (const char* op : {"mixup", "cutmix", "resize_mix", "mosaic"}) {
    for (const char* graph : {"", "- cast: {in: label, dtype: int16}\n",
                              "- random_horizontal_flip\n- cast: {in: label, dtype: int8}\n"}) {
      for (const int64_t label : {0, 2, 3, -1}) {
        SCOPED_TRACE(absl::StrCat(op, " ", graph, " ", label));
        TestRecord record;
        record.AddPixels(2, 2, 1, {5, 6, 7, 8}).AddLabel(label);
        const auto plan = MakePlan(
            PipelineText(graph, "[image, label]", absl::StrCat("batch: {graph: [", op, "]}\n")),
            record.fields(), true, 3);
        ASSERT_TRUE(plan.ok()) << plan.status();
        for (const auto& made : {RunPlan(**plan, record), RunPlanInHalves(**plan, record)}) {
          const bool is_good = made.ok();
          EXPECT_EQ(is_good, label == 0 || label == 2) << made.status();
          if (is_good) continue;
          EXPECT_TRUE(absl::IsInvalidArgument(made.status()));
          EXPECT_THAT(std::string(made.status().message()),
                      ::testing::AllOf(HasSubstr(absl::StrCat(op, ": class")),
                                       HasSubstr("is outside 0..2")));
        }
      }
    }
  }
}

// What a batch op writes, no sample can be blamed for.
TEST(Mixup, AClassThatABatchOpPutsOutOfRangeEndsTheBatch) {
  TestRecord record;
  record.AddPixels(1, 1, 1, {5}).AddLabel(200);
  const auto plan = MakePlan(
      PipelineText("", "[image, label]",
                   "batch: {graph: [python: {name: f, in: label}, mixup: {num_classes: 3}]}\n"),
      record.fields(), true, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  TestCaller caller;
  workspace.UseCaller(&caller, nullptr);
  TestBatch batch(**plan, 1);
  SampleInput input;
  input.record = record.record();
  ASSERT_TRUE((*plan)->Run(input, 0, batch.memory, workspace).ok());
  const absl::Status status = (*plan)->FinishBatch(1, 0, {}, batch.memory, workspace);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("mixup: sample 0 of the batch: class"));
}

TEST(Mixup, ANumberOfClassesThatTheLabelHasNotIsRefused) {
  TestRecord record;
  record.AddPixels(1, 1, 1, {5}).AddLabel(1);
  for (const char* op : {"mixup", "cutmix", "resize_mix"}) {
    const auto plan = [&](int64_t classes) {
      return MakePlan(
          PipelineText("- one_hot: {num_classes: 100}", "[image, label]",
                       absl::StrCat("batch: {graph: [", op, ": {num_classes: ", classes, "}]}\n")),
          record.fields(), true, 3);
    };
    EXPECT_THAT(std::string(plan(10).status().message()),
                HasSubstr("num_classes is 10, but the label has 100 weights"))
        << op;
    EXPECT_TRUE(plan(100).ok()) << plan(100).status();
  }
}

}  // namespace
}  // namespace feedwater::server
