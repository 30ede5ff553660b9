#include "server/graph/plan_graph.h"

#include <utility>

#include "server/graph/geometry_op.h"
#include "server/graph/plan_impl.h"

namespace feedwater::server {
namespace {

// The output of a node that holds a value.
struct Writer {
  int node = -1;
  int port = 0;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const Plan::Impl& plan)
      : plan_(plan),
        flow_(plan.flow),
        writers_(flow_.values.size()),
        batch_writers_(flow_.batch_values.size()) {}

  PlanGraph Build() {
    for (size_t i = 0; i < plan_.whole.steps.size(); ++i) AddStep(static_cast<int>(i));
    for (const BatchNode& node : flow_.batch_nodes) {
      if (node.is_live) AddBatchOp(node);
    }
    for (int output : flow_.outputs) AddOutput(output);
    return std::move(graph_);
  }

 private:
  using Kind = PlanGraph::Kind;

  int AddNode(PlanGraph::Node node) {
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  // Fields become nodes when the first reader asks for them.
  Writer WriterOf(int value) {
    Writer& writer = writers_[value];
    if (writer.node < 0) {
      PlanGraph::Node node;
      node.kind = Kind::kField;
      node.name = flow_.values[value].name;
      node.is_deterministic = flow_.values[value].is_deterministic;
      writer = {AddNode(std::move(node)), 0};
    }
    return writer;
  }

  Writer BatchWriterOf(int value) {
    const BatchValue& batch_value = flow_.batch_values[value];
    return batch_value.sample_value >= 0 ? WriterOf(batch_value.sample_value)
                                         : batch_writers_[value];
  }

  void AddEdge(const Writer& from, int to, int to_port, const std::string& field,
               const TensorSpec& spec) {
    graph_.edges.push_back({from.node, to, from.port, to_port, field, spec});
  }

  void AddStep(int pass) {
    for (const Step::Part& part : plan_.whole.steps[pass].parts) {
      for (const Node& candidate : flow_.nodes) {
        if (candidate.op.get() == part.op) AddOp(candidate, pass);
      }
    }
  }

  void AddOp(const Node& op, int pass) {
    std::vector<Writer> inputs;
    for (int value : op.in) inputs.push_back(WriterOf(value));
    PlanGraph::Node node;
    node.kind = Kind::kOp;
    node.name = op.entry->name;
    node.randomness = op.entry->randomness;
    node.place = static_cast<int>(op.instance);
    node.pass = pass;
    node.is_deterministic = flow_.values[op.out[0]].is_deterministic;
    node.is_in_prefix = plan_.is_in_prefix[&op - flow_.nodes.data()];
    const TensorSpec& input = flow_.values[op.in[0]].spec;
    PixelFormat format;
    if (const PixelOp* pixel = op.op->AsPixel();
        pixel != nullptr && (input.layout == Layout::kHWC || input.layout == Layout::kCHW) &&
        pixel->Compose(static_cast<int>(ChannelsOf(input)), &format)) {
      node.pixels = format;
    }
    const int added = AddNode(std::move(node));
    for (size_t i = 0; i < op.in.size(); ++i) {
      const Value& value = flow_.values[op.in[i]];
      AddEdge(inputs[i], added, static_cast<int>(i), value.name, value.spec);
    }
    for (size_t i = 0; i < op.out.size(); ++i) writers_[op.out[i]] = {added, static_cast<int>(i)};
  }

  void AddBatchOp(const BatchNode& op) {
    std::vector<Writer> inputs;
    for (int value : op.in) inputs.push_back(BatchWriterOf(value));
    PlanGraph::Node node;
    node.kind = Kind::kBatchOp;
    node.name = op.entry->name;
    node.randomness = op.entry->randomness;
    node.place = static_cast<int>(op.instance - kBatchInstance);
    const int added = AddNode(std::move(node));
    for (size_t i = 0; i < op.in.size(); ++i) {
      const BatchValue& value = flow_.batch_values[op.in[i]];
      AddEdge(inputs[i], added, static_cast<int>(i), value.name, value.spec);
    }
    for (size_t i = 0; i < op.out.size(); ++i) {
      batch_writers_[op.out[i]] = {added, static_cast<int>(i)};
    }
  }

  void AddOutput(int output) {
    const BatchValue& value = flow_.batch_values[output];
    const Writer writer = BatchWriterOf(output);
    PlanGraph::Node node;
    node.kind = Kind::kOutput;
    node.name = value.name;
    node.is_deterministic = graph_.nodes[writer.node].is_deterministic;
    const int added = AddNode(std::move(node));
    AddEdge(writer, added, 0, value.name, value.spec);
  }

  const Plan::Impl& plan_;
  const Dataflow& flow_;
  std::vector<Writer> writers_, batch_writers_;
  PlanGraph graph_;
};

}  // namespace

PlanGraph Plan::Graph() const { return GraphBuilder(*impl_).Build(); }

}  // namespace feedwater::server
