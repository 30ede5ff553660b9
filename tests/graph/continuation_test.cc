// What is left of a pipeline behind its prefix: over the records that the prefix made, it must give
// the bytes of the whole graph, whatever the graph's names and draws are.
#include "server/graph/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TestRecord Pixels() {
  TestRecord record;
  record.AddPixels(24, 20, 3, PatternPixels(24, 20, 3)).AddLabel(4);
  return record;
}

absl::StatusOr<Continuation> ContinuationOfText(const std::string& text,
                                                const std::vector<FieldSpec>& fields) {
  FW_ASSIGN_OR_RETURN(const PipelineSpec spec, ParsePipeline(text, "test.yaml"));
  return ContinuationOf(spec, fields, /*classes=*/10);
}

constexpr char kShuffled[] = "sampler: {shuffle: full}\n";

// Two batches of three samples of the record, which the ops on batches make differ.
std::vector<std::vector<Bytes>> Batches(const Plan& plan, TestRecord& record) {
  constexpr int64_t kSamples = 3;
  std::vector<std::vector<Bytes>> made;
  for (uint64_t number = 0; number < 2; ++number) {
    SampleWorkspace workspace;
    TestCaller caller;
    workspace.UseCaller(&caller, nullptr);
    TestBatch batch(plan, kSamples);
    for (int64_t k = 0; k < kSamples; ++k) {
      SampleInput input;
      input.record = record.record();
      input.sample_id = 5 * k;
      input.position = kSamples * static_cast<int64_t>(number) + k;
      input.key = EpochKey(3, 0);
      const absl::Status run = plan.Run(input, k, batch.memory, workspace);
      EXPECT_TRUE(run.ok()) << run;
    }
    const absl::Status finished =
        plan.FinishBatch(kSamples, number, EpochKey(3, 0), batch.memory, workspace);
    EXPECT_TRUE(finished.ok() && batch.GuardsHold()) << finished;
    for (int64_t k = 0; k < kSamples; ++k) made.push_back(batch.Sample(k));
  }
  return made;
}

// Runs the prefix, then the rest as a pipeline of its own, and the whole graph.
void ExpectSameBytes(const std::string& graph, const std::string& outputs,
                     const std::string& more = kShuffled) {
  TestRecord record = Pixels();
  const std::string text = PipelineText(graph, outputs, more);
  SCOPED_TRACE(text);
  const auto plan = MakePlan(text, record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto continuation = ContinuationOfText(text, record.fields());
  ASSERT_TRUE(continuation.ok()) << continuation.status();
  const std::string rest =
      absl::StrCat("version: 1\ndataset: {format: none}\n", continuation->rest);
  SCOPED_TRACE(rest);
  const auto source_spec = ParsePipeline(text, "test.yaml");
  const auto rest_spec = ParsePipeline(rest, "rest.yaml");
  ASSERT_TRUE(source_spec.ok() && rest_spec.ok()) << rest_spec.status();
  const absl::Status continues = CheckContinues(*source_spec, *rest_spec);
  EXPECT_TRUE(continues.ok()) << continues;
  SampleWorkspace workspace;
  SampleInput input;
  input.record = record.record();
  Record kept;
  ASSERT_TRUE((*plan)->RunPrefix(input, 1 << 30, workspace, &kept).ok());
  TestRecord made;
  ASSERT_EQ(kept.fields.size(), continuation->fields.size());
  for (size_t i = 0; i < kept.fields.size(); ++i) {
    const Tensor& field = kept.fields[i];
    made.Add(continuation->fields[i].name, continuation->fields[i].spec, field.spec,
             Bytes(reinterpret_cast<uint8_t*>(field.data),
                   reinterpret_cast<uint8_t*>(field.data) + field.bytes()));
  }
  const auto second = MakePlan(rest, made.fields());
  ASSERT_TRUE(second.ok()) << second.status();
  for (const int64_t sample_id : {0, 7, 1000}) {
    const auto whole = RunPlan(**plan, record, sample_id);
    const auto again = RunPlan(**second, made, sample_id);
    ASSERT_TRUE(whole.ok() && again.ok()) << whole.status() << again.status();
    EXPECT_EQ(*whole, *again);
  }
  EXPECT_EQ(Batches(**plan, record), Batches(**second, made));
}

TEST(Continuation, GivesTheSameBytesWithTheSameDraws) {
  ExpectSameBytes(
      "- resize: {size: [16, 16]}\n- random_crop: {size: 12}\n- random_horizontal_flip\n"
      "- normalize: {mean: [1], std: [2]}\n",
      "[image, label, sample_id]");
}

TEST(Continuation, GivesTheSameBytesWhateverNamesAreWrittenAgain) {
  // `image` names two stored values and one that is made later.
  ExpectSameBytes(
      "- center_crop: {in: image, size: 20}\n- random_vertical_flip: {in: image, out: other}\n"
      "- resize: {in: image, size: [14, 14]}\n- random_crop: {in: image, out: late, size: 9}\n"
      "- random_crop: {in: image, size: 10}\n",
      "[image, other, late]");
  // A stored value is the last one of a name that a random op has written before it.
  ExpectSameBytes(
      "- random_crop: {in: image, out: view, size: 9}\n"
      "- random_horizontal_flip: {in: view, out: seen}\n"
      "- resize: {in: image, out: view, size: [8, 8]}\n",
      "[seen, view]");
}

// Of `python: {batch: true}` there is no text in `batch:`. The draws of mixup are keyed by its
// place behind them, so that one that is left out changes those, too.
TEST(Continuation, KeepsOpsOfTheGraphThatRunOnBatchesAndTheirNumbers) {
  const std::string own = "- python: {name: own, in: image, out: image, batch: true}\n";
  const std::string mixup =
      "batch: {size: 3, graph: [{mixup: {in: [image, label], alpha: 0.4}}]}\n";
  const std::string head = "- resize: {size: [9, 9]}\n- random_crop: {size: 8}\n";
  ExpectSameBytes(head + own, "[image, label]");
  ExpectSameBytes("- resize: {size: [8, 8]}\n" + own, "[image, label]");
  ExpectSameBytes(head + own + own, "[image, label]", mixup);
  // `other` is read by nobody, and yet counts.
  ExpectSameBytes(head + "- python: {name: own, in: image, out: other, batch: true}\n",
                  "[image, label]", mixup);
  // In `batch: graph` it stays where it is, with or without the word.
  ExpectSameBytes(head + own, "[image, label]",
                  "batch: {graph: [{python: {name: own, batch: true}}, {mixup: {alpha: 0.4}}, "
                  "{python: {name: own, random: true}}]}\n");
  // A stored value has the name that a later one gets, which the op on batches reads.
  ExpectSameBytes(
      "- center_crop: {size: 20}\n- random_vertical_flip: {out: other}\n"
      "- random_crop: {size: 9}\n" +
          own,
      "[image, other]");
}

TEST(Continuation, KeepsEveryOtherKeyAsItWas) {
  const std::string graph =
      "- resize: {size: [12, 12]}\n- random_crop: {out: \"view_{0..3}\", size: 8}\n"
      "- random_horizontal_flip: {in: \"view_{0..3}\", draws_as: 20}\n"
      "- one_of: {in: [view_1], ops: [{random_invert: {p: 0.5}}, gaussian_noise]}\n";
  ExpectSameBytes(graph, "[\"view_{0..3}\", label, sample_id, is_real, position]",
                  "sampler: {shuffle: block, block_records: 5, seed: 9, last: pad, shard: batch}\n"
                  "on_bad_sample: skip_with_count\nmax_bad_fraction: 0.5\n"
                  "limits: {max_pixels: 100000, max_scans: 7, max_decode_ms: 2000, "
                  "max_sample_ms: 3000}\ncache: {kind: none, ram: 1GiB, disk: 0}\n"
                  "batch: {size: 3, graph: [{mixup: {in: [\"view_{0..1}\", label], out: "
                  "[\"view_{0..1}\", \"soft_{0..1}\"], alpha: 0.2}}]}\n");
  // Keys that say nothing, and names that YAML would take for something else.
  ExpectSameBytes("- resize: {size: [8, 8]}\n- random_invert: {out: \"on\"}\n", "[\"on\", label]",
                  "batch:\nlimits: {}\nsampler: {}\n");
}

TEST(Continuation, FilesOfOpsKeepTheRootOfTheDatasetThatTheyStoodBelow) {
  TestRecord record = Pixels();
  record.Add("text", {DType::kUInt8, Layout::kPlain, {-1}}, {DType::kUInt8, Layout::kPlain, {2}},
             {'a', 'b'});
  const auto made = ContinuationOfText(
      PipelineText("- resize: {size: [8, 8]}\n- python: {name: own, in: text, out: text}\n"
                   "- tokenize: {in: text, tokenizer: some/tokenizer.json, max_length: 8}\n",
                   "[image, tokens]"),
      record.fields());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->rest, HasSubstr("tokenizer: {root: r, path: some/tokenizer.json}"));
}

TEST(Continuation, NamesWhatARestHasInPlaceOfSomethingElse) {
  const auto parsed = [](const std::string& graph, const std::string& more) {
    return *ParsePipeline(PipelineText(graph, "[image, label]", more), "test.yaml");
  };
  const PipelineSpec source =
      parsed("- python: {name: own, batch: true}\n", "batch: {graph: [mixup]}\n");
  EXPECT_TRUE(CheckContinues(source, source).ok());
  const auto refused = [&](const PipelineSpec& rest) {
    const absl::Status status = CheckContinues(source, rest);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  EXPECT_THAT(refused(parsed("", "batch: {graph: [mixup]}\n")),
              HasSubstr("in place of 'batch op python("));
  EXPECT_THAT(refused(parsed("- python: {name: own, batch: true}\n", "")),
              HasSubstr("in place of 'batch op mixup("));
  EXPECT_THAT(refused(parsed("- python: {name: own, random: true, batch: true}\n",
                             "batch: {graph: [mixup]}\n")),
              HasSubstr("random"));
  EXPECT_THAT(refused(parsed("- python: {name: own, batch: true}\n",
                             "batch: {graph: [mixup]}\nsampler: {seed: 4}\n")),
              HasSubstr("seed=4"));
  PipelineSpec moved = source;
  moved.batch_graph[1].batch_place = 0;
  EXPECT_THAT(refused(moved), HasSubstr("draws"));
}

TEST(Continuation, LeavesOutEverythingWhenNothingIsRandom) {
  TestRecord record = Pixels();
  const auto continuation = ContinuationOfText(
      PipelineText("- resize: {size: [8, 8]}\n", "[image, label]"), record.fields());
  ASSERT_TRUE(continuation.ok()) << continuation.status();
  EXPECT_THAT(continuation->ops, ElementsAre("resize"));
  EXPECT_THAT(continuation->rest, Not(HasSubstr("graph")));
  EXPECT_THAT(continuation->sources, ElementsAre(1, -1));
  ExpectSameBytes("- resize: {size: [8, 8]}\n", "[image, label]");
}

TEST(Continuation, NamesTheOpThatLeavesNothingToDoOnce) {
  TestRecord record = Pixels();
  const auto refused = [&](const std::string& graph) {
    const auto made = ContinuationOfText(PipelineText(graph, "[image]"), record.fields());
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
    return std::string(made.status().message());
  };
  EXPECT_THAT(refused("- random_crop: {size: 8}\n- resize: {size: [4, 4]}\n"),
              HasSubstr("test.yaml:4:3: op 'random_crop' is random"));
  EXPECT_THAT(refused("- normalize: {mean: [1], std: [2]}\n"), HasSubstr("same numbers"));
}

}  // namespace
}  // namespace feedwater::server
