#include "client/cli/graph_drawing.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/cost_text.h"
#include "client/cli/text.h"
#include "server/base/fd.h"
#include "server/base/units.h"
#include "server/source/mix.h"

extern char** environ;

namespace feedwater::cli {
namespace {

using server::PlanGraph;
using server::Randomness;
using server::YamlNode;
using Kind = PlanGraph::Kind;

// What a node is drawn in, and why: also the legend.
struct Look {
  const char* fill;
  const char* line;
  const char* meaning;
};
constexpr Look kFieldLook = {"#e8eef7", "#5b7aa8", "a field of the dataset"};
constexpr Look kFixedLook = {"#e2f3e6", "#3c9a5f", "the same in every epoch"};
constexpr Look kRandomLook = {"#fdebc8", "#c98a1b", "random, drawn anew for each sample"};
constexpr Look kAfterLook = {"#f3f1ee", "#8c8780", "fixed, behind a random op"};
constexpr Look kBatchLook = {"#ece4f9", "#8561c5", "works on a whole batch"};
constexpr Look kOutputLook = {"#39424e", "#39424e", "an output"};
// With costs: the frame of the pass that takes most.
constexpr Look kHotLook = {"#f4b3a2", "#c0392b", "takes most of a sample's CPU time"};

const Look& LookOf(const PlanGraph::Node& node) {
  if (node.kind == Kind::kField) return kFieldLook;
  if (node.kind == Kind::kOutput) return kOutputLook;
  if (node.kind == Kind::kBatchOp) return kBatchLook;
  if (node.randomness != Randomness::kNone) return kRandomLook;
  return node.is_deterministic ? kFixedLook : kAfterLook;
}

std::string Escape(absl::string_view text) {
  std::string clean;
  for (char c : text) clean += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  return absl::StrReplaceAll(clean,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// The parameters as the file gives them, one a line.
std::string ParamLines(const server::OpSpec& op) {
  std::string lines;
  for (const auto& [key, value] : op.params.entries) {
    absl::StrAppend(&lines, "<BR/><FONT POINT-SIZE=\"9\" COLOR=\"#5f5a54\">", Escape(key.scalar),
                    ": ", Escape(InOneLine(value)), "</FONT>");
  }
  return lines;
}

class DotWriter {
 public:
  DotWriter(const PlannedPipeline& pipeline, const PlanGraph& graph, const PlanCost* cost)
      : pipeline_(pipeline), graph_(graph), cost_(cost) {
    for (size_t i = 0; cost != nullptr && i < cost->steps.size(); ++i) {
      if (hottest_ == nullptr || cost->steps[i].us > hottest_->us) hottest_ = &cost->steps[i];
    }
  }

  std::string Write() {
    absl::StrAppend(&text_, "digraph pipeline {\n",
                    "  graph [fontname=\"Helvetica,Arial,sans-serif\", fontsize=11, rankdir=TB, "
                    "nodesep=0.4, ranksep=0.45, pad=0.3, labelloc=t, label=<",
                    Title(), ">];\n",
                    "  node [fontname=\"Helvetica,Arial,sans-serif\", fontsize=12, shape=box, "
                    "style=\"rounded,filled\", penwidth=1.4, margin=\"0.16,0.08\"];\n",
                    "  edge [fontname=\"Helvetica,Arial,sans-serif\", fontsize=9, "
                    "color=\"#77716a\", fontcolor=\"#4a453f\", arrowsize=0.7];\n");
    Cluster("dataset", DatasetLabel(), "solid", "#5b7aa8", StepOf(StepCost::Kind::kRead),
            [](const PlanGraph::Node& node) { return node.kind == Kind::kField; });
    WritePasses();
    Cluster("batch", BatchLabel(), "solid", kBatchLook.line, StepOf(StepCost::Kind::kBatch),
            [](const PlanGraph::Node& node) { return node.kind == Kind::kBatchOp; });
    Cluster("outputs", "what the trainer gets", "solid", "#39424e", nullptr,
            [](const PlanGraph::Node& node) { return node.kind == Kind::kOutput; });
    for (const PlanGraph::Edge& edge : graph_.edges) {
      if (!IsInsideAPass(edge)) absl::StrAppend(&text_, "  ", EdgeText(edge));
    }
    absl::StrAppend(&text_, Legend(), "}\n");
    return std::move(text_);
  }

 private:
  std::string Title() const {
    return absl::StrCat(
        "<FONT POINT-SIZE=\"18\"><B>", Escape(pipeline_.spec.name), "</B></FONT>",
        pipeline_.records >= 0
            ? absl::StrCat("<BR/><FONT COLOR=\"#5f5a54\">",
                           server::FormatCount(pipeline_.records, "record"), "</FONT>")
            : "",
        cost_ != nullptr ? absl::StrCat("<BR/><FONT COLOR=\"#5f5a54\">", FormatUs(cost_->us),
                                        " &#181;s of one CPU a sample, measured over ",
                                        server::FormatCount(cost_->records, "record"), "</FONT>")
                         : "",
        "<BR/> ");
  }

  // What was measured of it; null: nothing was.
  const StepCost* StepOf(StepCost::Kind kind, int pass = -1) const {
    for (size_t i = 0; cost_ != nullptr && i < cost_->steps.size(); ++i) {
      const StepCost& step = cost_->steps[i];
      if (step.kind == kind && step.pass == pass) return &step;
    }
    return nullptr;
  }

  // "702 us, 86 %"
  static std::string CostText(const StepCost& step) {
    return absl::StrCat(step.kind == StepCost::Kind::kRead ? "read and parse: " : "", "<B>",
                        FormatUs(step.us), " &#181;s</B>, ", FormatShare(step.share));
  }

  // White for nothing, kHotLook's colour for all of a sample.
  static std::string HeatOf(double share) {
    const auto mix = [share](int hot) {
      return static_cast<int>(std::lround(255 + std::clamp(share, 0.0, 1.0) * (hot - 255)));
    };
    return absl::StrFormat("#%02x%02x%02x", mix(0xf4), mix(0xb3), mix(0xa2));
  }

  std::string DatasetLabel() const {
    const YamlNode& dataset = pipeline_.spec.dataset;
    if (server::IsMix(dataset)) return Escape(MixLabel(dataset));
    const auto text = [&](const char* key) {
      const YamlNode* node = dataset.is_map() ? dataset.Find(key) : nullptr;
      return node != nullptr && node->is_scalar() ? node->scalar : std::string();
    };
    const std::string path = text("path");
    return Escape(absl::StrCat(text("format"), ": ", text("root"), path.empty() ? "" : "/", path));
  }

  static std::string MixLabel(const YamlNode& dataset) {
    const auto mix = server::ReadMix(dataset);
    return mix.ok() ? absl::StrCat("a mix of ", mix->sources.size(), " datasets") : "a mix";
  }

  std::string BatchLabel() const {
    return pipeline_.spec.batch_size > 0
               ? absl::StrCat("once a batch of ", pipeline_.spec.batch_size, " is whole")
               : "once a batch is whole";
  }

  template <typename Belongs>
  void Cluster(const std::string& name, std::string label, const std::string& style,
               const std::string& color, const StepCost* cost, Belongs belongs) {
    std::string nodes;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (belongs(graph_.nodes[i])) absl::StrAppend(&nodes, "  ", NodeText(i));
    }
    if (nodes.empty()) return;
    // Edges within a frame belong to it, or dot would leave no room for their labels.
    for (const PlanGraph::Edge& edge : graph_.edges) {
      if (IsInsideAPass(edge) && belongs(graph_.nodes[edge.from])) {
        absl::StrAppend(&nodes, "    ", EdgeText(edge));
      }
    }
    if (cost != nullptr) absl::StrAppend(&label, label.empty() ? "" : "<BR/>", CostText(*cost));
    const bool is_hottest = cost != nullptr && cost == hottest_;
    const std::string line = is_hottest ? kHotLook.line : color;
    absl::StrAppend(
        &text_, "  subgraph cluster_", name, " {\n    graph [label=<", label,
        ">, labeljust=l, style=\"rounded,", cost != nullptr ? "filled," : "", style, "\", color=\"",
        line, "\", fontcolor=\"", line, "\", margin=12, penwidth=", is_hottest ? "3" : "1",
        cost != nullptr ? absl::StrCat(", fillcolor=\"", HeatOf(cost->share), "\"") : "",
        name == "outputs" ? ", labelloc=b" : "", "];\n", nodes, "  }\n");
  }

  // Ops of one pass in one frame; an op by itself needs none, unless it has a cost.
  void WritePasses() {
    std::map<int, int> sizes;
    for (const PlanGraph::Node& node : graph_.nodes) {
      if (node.kind == Kind::kOp) ++sizes[node.pass];
    }
    for (const auto& [pass, size] : sizes) {
      const int wanted = pass;
      const auto belongs = [wanted](const PlanGraph::Node& node) {
        return node.kind == Kind::kOp && node.pass == wanted;
      };
      const StepCost* const cost = StepOf(StepCost::Kind::kPass, pass);
      if (size > 1 || cost != nullptr) {
        Cluster(absl::StrCat("pass_", pass), size > 1 ? "one pass" : "",
                cost != nullptr ? "solid" : "dashed", "#6b655e", cost, belongs);
        continue;
      }
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (belongs(graph_.nodes[i])) absl::StrAppend(&text_, NodeText(i));
      }
    }
  }

  std::string NodeText(size_t i) const {
    const PlanGraph::Node& node = graph_.nodes[i];
    const Look& look = LookOf(node);
    std::string label = absl::StrCat("<B>", Escape(node.name), "</B>");
    const auto& ops =
        node.kind == Kind::kBatchOp ? pipeline_.spec.batch_graph : pipeline_.spec.graph;
    if (node.place >= 0 && node.place < static_cast<int>(ops.size())) {
      absl::StrAppend(&label, ParamLines(ops[static_cast<size_t>(node.place)]));
    }
    const bool is_field = node.kind == Kind::kField;
    return absl::StrCat("  n", i, " [label=<", label, ">, fillcolor=\"", look.fill, "\", color=\"",
                        look.line, "\"", node.kind == Kind::kOutput ? ", fontcolor=white" : "",
                        is_field ? ", shape=box, style=filled" : "", "];\n");
  }

  bool IsInsideAPass(const PlanGraph::Edge& edge) const {
    const PlanGraph::Node& from = graph_.nodes[edge.from];
    const PlanGraph::Node& to = graph_.nodes[edge.to];
    return from.kind == Kind::kOp && to.kind == Kind::kOp && from.pass == to.pass;
  }

  std::string EdgeText(const PlanGraph::Edge& edge) const {
    const PlanGraph::Node& from = graph_.nodes[edge.from];
    const PlanGraph::Node& to = graph_.nodes[edge.to];
    const bool is_frontier = from.is_in_prefix && !to.is_in_prefix;
    // Two short lines, because dot lets long labels cross the frames.
    const char* const end = "<BR ALIGN=\"LEFT\"/>";
    const char* const space = "&#160;&#160;";  // away from the arrow
    std::string label = absl::StrCat(space, "<B>", Escape(edge.field), "</B>", end, space,
                                     Escape(edge.spec.ToString()), end);
    if (is_frontier) {
      absl::StrAppend(&label, space, "<FONT COLOR=\"", kFixedLook.line,
                      "\">a cache may keep it</FONT>", end);
    }
    return absl::StrCat(
        "n", edge.from, " -> n", edge.to, " [label=<", label, ">",
        is_frontier ? absl::StrCat(", penwidth=2.2, color=\"", kFixedLook.line, "\"") : "", "];\n");
  }

  // Only what the drawing shows.
  std::string Legend() const {
    std::string rows;
    for (const Look* look : {&kFixedLook, &kRandomLook, &kAfterLook, &kBatchLook}) {
      bool is_used = false;
      for (const PlanGraph::Node& node : graph_.nodes) is_used |= &LookOf(node) == look;
      if (!is_used) continue;
      absl::StrAppend(&rows, "<TR><TD BGCOLOR=\"", look->fill, "\" COLOR=\"", look->line,
                      "\" BORDER=\"1\" WIDTH=\"22\"> </TD><TD ALIGN=\"LEFT\">", look->meaning,
                      "</TD></TR>");
    }
    if (hottest_ != nullptr) {
      absl::StrAppend(&rows, "<TR><TD BGCOLOR=\"", kHotLook.fill, "\" COLOR=\"", kHotLook.line,
                      "\" BORDER=\"2\" WIDTH=\"22\"> </TD><TD ALIGN=\"LEFT\">", kHotLook.meaning,
                      "</TD></TR>");
    }
    if (rows.empty()) return "";
    std::string text = absl::StrCat(
        "  legend [shape=plain, style=\"\", fontsize=10, fontcolor=\"#4a453f\", label=<<TABLE "
        "BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"4\" CELLPADDING=\"2\">",
        rows, "</TABLE>>];\n");
    // Below everything else.
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].kind != Kind::kOutput) continue;
      absl::StrAppend(&text, "  n", i, " -> legend [style=invis];\n");
      break;
    }
    return text;
  }

  const PlannedPipeline& pipeline_;
  const PlanGraph& graph_;
  const PlanCost* const cost_;  // null: nothing was measured
  const StepCost* hottest_ = nullptr;
  std::string text_;
};

// A file in memory that a child can have as its standard input or output.
absl::StatusOr<server::Fd> MemoryFile(const char* name, const std::string& content) {
  server::Fd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd) return server::ErrnoStatus(errno, "memfd_create");
  for (size_t done = 0; done < content.size();) {
    const ssize_t written = write(fd.get(), content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return server::ErrnoStatus(errno, "writing to memory");
    done += static_cast<size_t>(written);
  }
  if (lseek(fd.get(), 0, SEEK_SET) != 0) return server::ErrnoStatus(errno, "lseek");
  return fd;
}

absl::StatusOr<std::string> ReadAll(int fd) {
  std::string content;
  char buffer[65536];
  for (off_t offset = 0;;) {
    const ssize_t got = pread(fd, buffer, sizeof(buffer), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return server::ErrnoStatus(errno, "reading what dot wrote");
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
    offset += got;
  }
}

}  // namespace

std::string ToDot(const PlannedPipeline& pipeline, const PlanGraph& graph, const PlanCost* cost) {
  return DotWriter(pipeline, graph, cost).Write();
}

absl::StatusOr<std::string> RunDot(const std::string& text, const std::string& format) {
  FW_ASSIGN_OR_RETURN(const server::Fd in, MemoryFile("dot-in", text));
  FW_ASSIGN_OR_RETURN(const server::Fd out, MemoryFile("dot-out", ""));
  FW_ASSIGN_OR_RETURN(const server::Fd errors, MemoryFile("dot-errors", ""));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.get(), STDERR_FILENO);
  std::string program = "dot", kind = absl::StrCat("-T", format), dpi = "-Gdpi=144";
  std::vector<char*> arguments = {program.data(), kind.data()};
  if (format == "png") arguments.push_back(dpi.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat("drawing ", format,
                     " needs Graphviz' program `dot`, which is not in $PATH: apt-get install "
                     "graphviz; `-o graph.dot` writes the graph as text without it"));
  }
  if (error != 0) return server::ErrnoStatus(error, "starting dot");
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return server::ErrnoStatus(errno, "waiting for dot");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    FW_ASSIGN_OR_RETURN(const std::string message, ReadAll(errors.get()));
    return absl::InternalError(absl::StrCat("dot failed: ", message.substr(0, 1000)));
  }
  FW_ASSIGN_OR_RETURN(std::string drawing, ReadAll(out.get()));
  if (drawing.empty()) return absl::InternalError("dot wrote nothing");
  return drawing;
}

}  // namespace feedwater::cli
