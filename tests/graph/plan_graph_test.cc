// The plan as nodes and edges, against what the text of the pipeline says.
#include "server/graph/plan_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "server/source/dataset.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using Kind = PlanGraph::Kind;

PlanGraph GraphOf(const PipelineSpec& spec, const PlanOptions& options = {}) {
  const auto fields = DescribeDataset(spec.dataset);
  EXPECT_TRUE(fields.ok()) << fields.status();
  const auto plan = Plan::Create(spec, **fields, /*classes=*/10, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? (*plan)->Graph() : PlanGraph();
}

PlanGraph GraphOfText(const std::string& text, const PlanOptions& options = {}) {
  const auto spec = ParsePipeline(
      absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\n", text),
      "test.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? GraphOf(*spec, options) : PlanGraph();
}

std::vector<std::string> Names(const PlanGraph& graph, Kind kind) {
  std::vector<std::string> names;
  for (const PlanGraph::Node& node : graph.nodes) {
    if (node.kind == kind) names.push_back(node.name);
  }
  return names;
}

TEST(PlanGraph, OfEverySamplePipelineRunsForwardFromFieldsToAllOutputs) {
  const auto folder = std::filesystem::path(FEEDWATER_SOURCE_DIR) / "config/pipelines";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(file.path());
    const auto spec = ReadPipelineFile(file.path().string());
    ASSERT_TRUE(spec.ok()) << spec.status();
    // Of CSV the files tell which fields there are.
    if (!DescribeDataset(spec->dataset)->has_value()) continue;
    const PlanGraph graph = GraphOf(*spec);
    std::vector<std::string> outputs;
    for (const OutputSpec& output : spec->outputs) outputs.push_back(output.name);
    EXPECT_EQ(Names(graph, Kind::kOutput), outputs);
    EXPECT_EQ(Names(graph, Kind::kOp).size(), spec->graph.size());
    std::map<int, int> incoming;
    for (const PlanGraph::Edge& edge : graph.edges) {
      ++incoming[edge.to];
      // Fields are added when they are first read, everything else after what it reads.
      EXPECT_LT(edge.from, edge.to);
    }
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
      EXPECT_EQ(incoming[i] == 0, graph.nodes[i].kind == Kind::kField) << graph.nodes[i].name;
    }
  }
}

TEST(PlanGraph, TellsPassesApartAndLeavesOutWhatNobodyNeeds) {
  const std::string text =
      "graph:\n"
      "  - decode: {in: data, out: image}\n"
      "  - decode: {in: data, out: unused}\n"
      "  - center_crop: {size: 8}\n"
      "  - random_equalize\n"
      "outputs: [image]\n";
  const PlanGraph fused = GraphOfText(text);
  ASSERT_THAT(Names(fused, Kind::kOp), ElementsAre("decode", "center_crop", "random_equalize"));
  std::vector<int> places, passes, alone;
  for (const PlanGraph::Node& node : fused.nodes) {
    if (node.kind != Kind::kOp) continue;
    places.push_back(node.place);
    passes.push_back(node.pass);
  }
  EXPECT_THAT(places, ElementsAre(0, 2, 3));
  EXPECT_THAT(passes, ElementsAre(0, 0, 1));
  for (const PlanGraph::Node& node : GraphOfText(text, {.fuse = false}).nodes) {
    if (node.kind == Kind::kOp) alone.push_back(node.pass);
  }
  EXPECT_THAT(alone, ElementsAre(0, 1, 2));
}

TEST(PlanGraph, NothingBehindARandomOpIsDeterministic) {
  const PlanGraph graph = GraphOfText(
      "graph:\n"
      "  - decode: {in: data, out: image}\n"
      "  - resize: {size: [16, 16]}\n"
      "  - random_horizontal_flip: {in: image, out: flipped}\n"
      "  - center_crop: {in: flipped, size: 8}\n"
      "outputs: [image, flipped, sample_id, position]\n");
  std::map<std::string, bool> ops, outputs;
  for (const PlanGraph::Node& node : graph.nodes) {
    if (node.kind == Kind::kOp) ops[node.name] = node.is_deterministic;
    if (node.kind == Kind::kOutput) outputs[node.name] = node.is_deterministic;
  }
  EXPECT_EQ(ops, (std::map<std::string, bool>{{"decode", true},
                                              {"resize", true},
                                              {"random_horizontal_flip", false},
                                              {"center_crop", false}}));
  EXPECT_EQ(outputs,
            (std::map<std::string, bool>{
                {"image", true}, {"flipped", false}, {"sample_id", true}, {"position", false}}));
}

TEST(PlanGraph, KnowsWhatPixelOpsDoToPixelsAndWhichPortsAreJoined) {
  const PlanGraph graph = GraphOfText(
      "graph:\n"
      "  - decode: {in: data, out: image}\n"
      "  - center_crop: {size: 8}\n"
      "  - normalize: {mean: [1, 2, 3], std: [2, 4, 8]}\n"
      "batch: {size: 4, graph: [{mixup: {in: [image, label]}}]}\n"
      "outputs: [label, image]\n");
  int mixup = -1;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const PlanGraph::Node& node = graph.nodes[i];
    EXPECT_EQ(node.pixels.has_value(), node.name == "normalize") << node.name;
    if (node.kind == Kind::kBatchOp) mixup = i;
    if (!node.pixels.has_value()) continue;
    EXPECT_TRUE(node.pixels->affine);
    EXPECT_EQ(node.pixels->mean[2], 3.0f);
    EXPECT_EQ(node.pixels->inverse_std[1], 0.25f);
  }
  ASSERT_GE(mixup, 0);
  std::map<std::string, int> in, out;
  for (const PlanGraph::Edge& edge : graph.edges) {
    if (edge.to == mixup) in[edge.field] = edge.to_port;
    if (edge.from == mixup) out[edge.field] = edge.from_port;
  }
  const std::map<std::string, int> expected = {{"image", 0}, {"label", 1}};
  EXPECT_EQ(in, expected);
  EXPECT_EQ(out, expected);
}

TEST(PlanGraph, ATimedRunClocksEachPassAndWritesTheSameBytes) {
  using namespace graph_testing;  // NOLINT: the tests' own words
  TestRecord record;
  record.AddEncoded(EncodedImage(60, 80, ".png"));
  record.AddLabel(3);
  // The same pass number in the graph and in the times: a blur is a pass of its own.
  const auto plan = MakePlan(PipelineText("- decode\n- resize: {size: [32, 32]}\n- gaussian_blur: "
                                          "{kernel_size: 5}\n- normalize: {mean: [1], std: [2]}",
                                          "[image, label]"),
                             record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  int last = 0;
  for (const PlanGraph::Node& node : (*plan)->Graph().nodes) last = std::max(last, node.pass);
  ASSERT_EQ((*plan)->passes(), static_cast<size_t>(last) + 1);
  TestBatch batch(**plan, 1);
  SampleInput input;
  input.record = record.record();
  input.sample_id = 7;
  input.key = EpochKey(1, 0);
  SampleWorkspace workspace;
  std::vector<int64_t> times((*plan)->passes() + 1, 0);
  for (int round = 0; round < 3; ++round) {
    const std::vector<int64_t> before = times;
    ASSERT_TRUE((*plan)->RunTimed(input, 0, batch.memory, workspace, absl::MakeSpan(times)).ok());
    for (size_t i = 0; i < times.size(); ++i) EXPECT_GT(times[i], before[i]) << i;
  }
  EXPECT_EQ(batch.Sample(0), *RunPlan(**plan, record));
}

}  // namespace
}  // namespace feedwater::server
