// feedwater graph: the planned graph of a pipeline, drawn by Graphviz or as data.
#include <filesystem>
#include <iostream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/cost_text.h"
#include "client/cli/graph_drawing.h"
#include "client/cli/json_text.h"
#include "client/cli/local_pipeline.h"
#include "client/cli/output_file.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

using nlohmann::json;
using server::PlanGraph;

const char* KindName(PlanGraph::Kind kind) {
  switch (kind) {
    case PlanGraph::Kind::kField:
      return "field";
    case PlanGraph::Kind::kOp:
      return "op";
    case PlanGraph::Kind::kBatchOp:
      return "batch_op";
    case PlanGraph::Kind::kOutput:
      return "output";
  }
  return "";
}

json ToJson(const PlannedPipeline& pipeline, const PlanGraph& graph) {
  json nodes = json::array(), edges = json::array();
  for (const PlanGraph::Node& node : graph.nodes) {
    json entry = {{"kind", KindName(node.kind)},
                  {"name", node.name},
                  {"randomness", server::RandomnessText(node.randomness)},
                  {"deterministic", node.is_deterministic},
                  {"in_prefix", node.is_in_prefix}};
    if (node.place >= 0) entry["place"] = node.place;
    if (node.pass >= 0) entry["pass"] = node.pass;
    nodes.push_back(std::move(entry));
  }
  for (const PlanGraph::Edge& edge : graph.edges) {
    edges.push_back(
        {{"from", edge.from},
         {"to", edge.to},
         {"field", edge.field},
         {"dtype", std::string(server::DTypeName(edge.spec.dtype))},
         {"layout", std::string(server::LayoutName(edge.spec.layout))},
         {"shape", std::vector<int64_t>(edge.spec.shape.begin(), edge.spec.shape.end())}});
  }
  return {{"pipeline", pipeline.spec.name}, {"nodes", nodes}, {"edges", edges}};
}

// "svg", "png", "pdf" or "dot", as the file's name ends.
absl::StatusOr<std::string> FormatOf(const std::string& path) {
  const std::string extension =
      absl::AsciiStrToLower(std::filesystem::path(path).extension().string());
  for (const char* known : {"svg", "png", "pdf", "dot"}) {
    if (extension == absl::StrCat(".", known)) return std::string(known);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' does not say what to write: a graph's name ends in .svg, .png, .pdf or .dot"));
}

struct Arguments {
  std::string pipeline, config, output;
  bool cost = false;
  int64_t samples = 32;
};

absl::Status DrawGraph(const Context& context, const Arguments& arguments) {
  const std::string& output = arguments.output;
  std::string format;
  if (!output.empty()) {
    FW_ASSIGN_OR_RETURN(format, FormatOf(output));
    FW_RETURN_IF_ERROR(CheckWritable(output));
  }
  PlannedPipeline pipeline;
  std::optional<PlanCost> cost;
  const ConfigChoice config{arguments.config, context.address};
  if (arguments.cost) {
    FW_ASSIGN_OR_RETURN(MeasuredPipeline measured, MeasurePipeline(arguments.pipeline, config,
                                                                   {.records = arguments.samples}));
    pipeline = std::move(measured.pipeline);
    cost = std::move(measured.cost);
  } else {
    FW_ASSIGN_OR_RETURN(pipeline, PlanPipeline(arguments.pipeline, config));
  }
  const PlanCost* const measured = cost ? &*cost : nullptr;
  const PlanGraph graph = pipeline.plan->Graph();
  if (!output.empty()) {
    std::string drawing = ToDot(pipeline, graph, measured);
    if (format != "dot") {
      FW_ASSIGN_OR_RETURN(drawing, RunDot(drawing, format));
    }
    FW_RETURN_IF_ERROR(WriteFile(output, drawing));
  }
  if (context.json) {
    json document = ToJson(pipeline, graph);
    if (!output.empty()) document["file"] = output;
    if (measured != nullptr) document["cost"] = CostJson(*measured);
    PrintJson(document);
  } else if (output.empty()) {
    std::cout << ToDot(pipeline, graph, measured);
  } else {
    int64_t ops = 0;
    for (const PlanGraph::Node& node : graph.nodes) {
      ops += node.kind == PlanGraph::Kind::kOp || node.kind == PlanGraph::Kind::kBatchOp;
    }
    std::cout << output << ": " << ops << " ops of " << pipeline.spec.name;
    if (measured != nullptr) {
      std::cout << ", " << FormatUs(measured->us) << " us of one CPU a sample ("
                << server::FormatCount(measured->records, "record") << ")";
    }
    std::cout << "\n";
  }
  return absl::OkStatus();
}

void AddGraph(CLI::App& app, Context& context) {
  static Arguments arguments;
  CLI::App* command = AddCommand(
      app, context, "graph",
      "draw the planned graph: types, shapes, what runs in one pass, what is random; needs no "
      "daemon",
      "  feedwater graph pipelines/imagenet-train.yaml -o graph.svg\n"
      "  feedwater graph imagenet-train --config feedwater.yaml -o graph.png\n"
      "  feedwater graph pipelines/simclr.yaml > graph.dot   # the text that `dot` reads\n"
      "  feedwater graph imagenet-train --config feedwater.yaml --cost -o graph.svg   # measured\n"
      "Drawings are made by Graphviz' `dot` (apt-get install graphviz); .dot needs nothing.",
      [&context] { return DrawGraph(context, arguments); });
  command
      ->add_option("pipeline", arguments.pipeline, "a .yaml file, or a name of the configuration")
      ->required()
      ->type_name("PIPELINE");
  command
      ->add_option("-o,--output", arguments.output,
                   "the drawing: .svg, .png, .pdf or .dot; default: dot's text on stdout")
      ->type_name("FILE");
  command
      ->add_option("--config", arguments.config,
                   "the daemon's configuration: also opens the dataset, for its number of records "
                   "and classes")
      ->type_name("FILE");
  AddCostOptions(
      command, &arguments.cost, &arguments.samples,
      "run the graph over some records on one CPU, a few seconds long, and write on each "
      "box what it takes of a sample");
}

const server::Registrar<CommandEntry> kRegistrar("graph", {CommandEntry::kPipelines, AddGraph});

}  // namespace

}  // namespace feedwater::cli
