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

// Runs the prefix, then the rest as a pipeline of its own, and the whole graph.
void ExpectSameBytes(const std::string& graph, const std::string& outputs) {
  TestRecord record = Pixels();
  const std::string text = PipelineText(graph, outputs, "sampler: {shuffle: full}\n");
  const auto plan = MakePlan(text, record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto continuation = ContinuationOfText(text, record.fields());
  ASSERT_TRUE(continuation.ok()) << continuation.status();
  const std::string rest =
      absl::StrCat("version: 1\ndataset: {format: none}\n", continuation->rest);
  SCOPED_TRACE(rest);
  for (const int64_t sample_id : {0, 7, 1000}) {
    SampleWorkspace workspace;
    SampleInput input;
    input.record = record.record();
    input.sample_id = sample_id;
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
    const auto whole = RunPlan(**plan, record, sample_id);
    const auto again = RunPlan(**second, made, sample_id);
    ASSERT_TRUE(whole.ok() && again.ok()) << whole.status() << again.status();
    EXPECT_EQ(*whole, *again);
  }
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
