// Ranges of fields' names: what they stand for, what they draw, and what is refused.
#include "server/graph/field_ranges.h"

#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

absl::StatusOr<PipelineSpec> Parse(const std::string& graph, const std::string& outputs,
                                   const std::string& more = "") {
  return ParsePipeline(PipelineText(graph, outputs, more), "test.yaml");
}
std::string MessageOf(const std::string& graph, const std::string& outputs = "[image]",
                      const std::string& more = "") {
  return std::string(Parse(graph, outputs, more).status().message());
}

// A range is another way to write the same pipeline: saved states and caches are the same.
TEST(FieldRanges, StandForTheSamePipelineWrittenOut) {
  const auto with_ranges = Parse(
      "- decode\n"
      "- random_crop: {size: 8, out: \"view_{0..1}\"}\n"
      "- random_crop: {size: 4, out: \"view_{2..3}\"}\n"
      "- random_horizontal_flip: {in: \"view_{0..3}\"}",
      "[\"view_{0..3}\", label]");
  const auto written_out = Parse(
      "- decode\n"
      "- random_crop: {size: 8, out: view_0}\n- random_crop: {size: 8, out: view_1}\n"
      "- random_crop: {size: 4, out: view_2}\n- random_crop: {size: 4, out: view_3}\n"
      "- random_horizontal_flip: {in: view_0}\n- random_horizontal_flip: {in: view_1}\n"
      "- random_horizontal_flip: {in: view_2}\n- random_horizontal_flip: {in: view_3}",
      "[view_0, view_1, view_2, view_3, label]");
  ASSERT_TRUE(with_ranges.ok()) << with_ranges.status();
  ASSERT_TRUE(written_out.ok()) << written_out.status();
  EXPECT_EQ(with_ranges->digest, written_out->digest);
  EXPECT_EQ(with_ranges->graph.size(), 9u);
}

TEST(FieldRanges, DrawsAreIndependent) {
  TestRecord record;
  record.AddPixels(64, 64, 1, PatternPixels(64, 64, 1)).AddLabel(1);
  const auto made =
      RunGraph("- random_crop: {size: 8, out: \"view_{0..3}\"}", record, "[\"view_{0..3}\"]");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->size(), 4u);
  for (size_t i = 1; i < made->size(); ++i) EXPECT_NE(made->at(i), made->at(0));
}

TEST(FieldRanges, SeveralGoSideBySide) {
  const auto spec = Parse(
      "- random_crop: {size: 8, in: [image, mask], out: [\"a_{1..2}\", \"m{8..9}x\"]}\n"
      "- random_horizontal_flip: {in: [\"a_{1..2}\", \"m{8..9}x\"], draws_as: 100}",
      "[\"a_{1..2}\", {\"m{8..9}x\": {}}]");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->graph.size(), 4u);
  EXPECT_EQ(spec->graph[1].out, (std::vector<std::string>{"a_2", "m9x"}));
  EXPECT_EQ(spec->graph[3].in, (std::vector<std::string>{"a_2", "m9x"}));
  EXPECT_EQ(spec->graph[2].draws_as, 100u);
  EXPECT_EQ(spec->graph[3].draws_as, 101u);
  ASSERT_EQ(spec->outputs.size(), 4u);
  EXPECT_EQ(spec->outputs[3].name, "m9x");
}

TEST(FieldRanges, ThoseOfACombinatorsOpsGoWithIt) {
  const auto spec = Parse(
      "- apply: {p: 1, in: [\"v_{0..1}\", \"m_{0..1}\"], ops: [random_horizontal_flip, "
      "random_invert: {in: \"v_{0..1}\"}]}",
      "[\"v_{0..1}\"]");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->graph.size(), 2u);
  EXPECT_EQ(spec->graph[1].inner[1].in, (std::vector<std::string>{"v_1"}));
}

// What stands for too much is refused before all of it is made.
TEST(FieldRanges, ManyLongEntriesAreRefusedAtTheFirst) {
  std::string ops = "random_invert";
  for (int i = 1; i < 30; ++i) ops += ", random_invert";
  std::string graph;
  for (int i = 0; i < 250; ++i)
    absl::StrAppend(&graph, "- apply: {p: 1, out: \"v", i, "_{0..255}\", ops: [", ops, "]}\n");
  EXPECT_THAT(MessageOf(graph), HasSubstr("test.yaml:4:"));
}

TEST(FieldRanges, OfABatchOp) {
  const auto spec = Parse("- random_crop: {size: 8, out: \"view_{0..1}\"}", "[\"view_{0..1}\"]",
                          "batch: {graph: [cutmix: {in: [\"view_{0..1}\", label], "
                          "out: [\"view_{0..1}\", \"label_{0..1}\"]}]}\n");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->batch_graph.size(), 2u);
  EXPECT_EQ(spec->batch_graph[1].out, (std::vector<std::string>{"view_1", "label_1"}));
}

TEST(FieldRanges, RefusesWhatStandsForNothing) {
  const auto of = [](const std::string& name) {
    return MessageOf("- random_crop: {size: 8, out: \"" + name + "\"}");
  };
  EXPECT_THAT(of("view_{3..1}"), HasSubstr("the wrong way round"));
  EXPECT_THAT(of("view_{0..300}"), HasSubstr("more than 256 fields"));
  EXPECT_THAT(of("view_{0..99999999999999999999}"), HasSubstr("without two whole numbers"));
  EXPECT_THAT(of("view_{00..03}"), HasSubstr("without two whole numbers"));
  EXPECT_THAT(of("view_{-1..3}"), HasSubstr("without two whole numbers"));
  EXPECT_THAT(of("view_{a,b}"), HasSubstr("a range of fields is such as view_{0..9}"));
  EXPECT_THAT(of("view_{0..1}_{0..1}"), HasSubstr("without two whole numbers"));
  EXPECT_THAT(of("view_{0..1"), HasSubstr("is no name for a field"));
  EXPECT_THAT(of("{0..1}"), HasSubstr("is no name for a field"));
  EXPECT_THAT(of("view-{0..1}"), HasSubstr("is no name for a field"));
  EXPECT_THAT(of(std::string(64, 'a') + "{0..1}"), HasSubstr("is no name for a field"));
}

TEST(FieldRanges, RefusesWhatWouldLoseFields) {
  EXPECT_THAT(MessageOf("- random_crop: {size: 8, in: \"a_{0..1}\", out: \"b_{0..2}\"}"),
              HasSubstr("'b_{0..2}' stands for 3 fields and 'a_{0..1}' for 2"));
  EXPECT_THAT(MessageOf("- random_crop: {size: 8, in: \"a_{0..1}\", out: b}"),
              HasSubstr("of which several write 'b'"));
  EXPECT_THAT(MessageOf("- decode: {in: \"data_{0..1}\"}"),
              HasSubstr("of which several write 'image'"));
  EXPECT_THAT(MessageOf("- random_crop: {size: 8, in: [a, b], out: [\"v_{0..2}\", \"v_{2..4}\"]}"),
              HasSubstr("of which several write 'v_2'"));
  EXPECT_THAT(MessageOf("- decode", "[\"view_{0..1}\", view_1]"), HasSubstr("'view_1' twice"));
}

// What a short file may stand for is bounded, like a file.
TEST(FieldRanges, ALargeEntryIsNotTakenMoreOften) {
  std::string mean = "0";
  for (int i = 0; i < 5000; ++i) mean += ", 0";
  EXPECT_THAT(MessageOf("- normalize: {mean: [" + mean + "], std: [1], in: \"a_{0..255}\"}"),
              HasSubstr("too large to be meant 256 times"));
  EXPECT_THAT(MessageOf("- random_crop: {size: 8, out: \"a_{0..255}\"}\n"
                        "- random_crop: {size: 8, out: \"b_{0..1}\"}"),
              HasSubstr("has more than 256 ops from here on"));
  std::string outputs;
  for (int i = 0; i < 100; ++i)
    outputs += absl::StrCat(i == 0 ? "[" : ", ", "\"a", i, "_{0..255}\"");
  EXPECT_THAT(MessageOf("- decode", outputs + "]"), HasSubstr("too large to be meant"));
}

}  // namespace
}  // namespace feedwater::server
