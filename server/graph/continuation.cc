#include "server/graph/continuation.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/schema.h"
#include "server/base/yaml.h"
#include "server/base/yaml_word.h"
#include "server/graph/dataflow.h"
#include "server/graph/digest.h"
#include "server/graph/inner_ops.h"
#include "server/graph/op_spec.h"
#include "server/graph/prefix.h"

namespace feedwater::server {
namespace {

// A node on one line.
std::string FlowText(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar: {
      // A number stands without quotes, as people write it.
      double number = 0;
      const bool is_number = ParamType<double>::Read(node, &number).ok();
      const bool is_truth = node.scalar == "true" || node.scalar == "false";
      return is_number || is_truth ? node.scalar : YamlWord(node.scalar);
    }
    case YamlNode::Kind::kList:
      return absl::StrCat("[",
                          absl::StrJoin(node.items, ", ",
                                        [](std::string* out, const YamlNode& item) {
                                          absl::StrAppend(out, FlowText(item));
                                        }),
                          "]");
    case YamlNode::Kind::kMap:
      return absl::StrCat(
          "{",
          absl::StrJoin(node.entries, ", ",
                        [](std::string* out, const std::pair<YamlNode, YamlNode>& entry) {
                          absl::StrAppend(out, FlowText(entry.first), ": ", FlowText(entry.second));
                        }),
          "}");
  }
  return "";
}

class Continuing {
 public:
  // `batch_ops`: how many of the ops on batches stand in `graph`.
  Continuing(const PipelineSpec& spec, const Dataflow& flow, const Prefix& prefix, size_t batch_ops)
      : spec_(spec),
        flow_(flow),
        prefix_(prefix),
        batch_ops_(batch_ops),
        names_(flow.values.size()) {
    for (size_t i = 0; i < flow.nodes.size(); ++i) {
      if (flow.nodes[i].is_live && !prefix.nodes[i]) rest_.push_back(static_cast<int>(i));
    }
    for (size_t v = 0; v < names_.size(); ++v) names_[v] = flow.values[v].name;
  }

  // The names as they are, where each of them then stands for the same value as before; else one of
  // its own for each value that a later one of its name hides.
  void NameValues() {
    if (!NamesHold()) GiveNames();
  }

  const std::string& name(int value) const { return names_[value]; }

  // What is left of the ops on samples.
  std::string Graph() const {
    if (rest_.empty()) return "";
    std::string text = "graph:\n";
    for (size_t place = 0; place < rest_.size(); ++place) {
      const Node& node = flow_.nodes[rest_[place]];
      std::string draws_as;
      if (node.entry->randomness == Randomness::kPerSample && node.draws_as != place)
        draws_as = absl::StrCat(", ", kDrawsAs, ": ", node.draws_as);
      YamlNode params = spec_.graph[node.instance].params;
      if (node.entry->is_combinator()) RenameInnerFields(NewNames(node), &params);
      absl::StrAppend(
          &text, "  - ",
          OpText(node.entry->name, NamesOf(node.in), NamesOf(node.out), draws_as, params), "\n");
    }
    return text;
  }

  // Ops of `graph` that run on batches stand before those of `batch: graph`, as they did. All of
  // them: their draws are keyed by their places among each other. `batch`: the source's; may be
  // null.
  std::string Batch(const YamlNode* batch) const {
    std::vector<std::string> keys, ops;
    for (size_t i = 0; i < batch_ops_; ++i) {
      const OpSpec& op = spec_.batch_graph[i];
      ops.push_back(absl::StrCat("{", OpText(op.name, op.in, op.out, "", op.params), "}"));
    }
    for (size_t i = 0; batch != nullptr && i < batch->entries.size(); ++i) {
      const auto& [key, value] = batch->entries[i];
      if (key.scalar != "graph") {
        keys.push_back(absl::StrCat(FlowText(key), ": ", FlowText(value)));
        continue;
      }
      for (const YamlNode& op : value.items) ops.push_back(FlowText(op));
    }
    if (!ops.empty()) keys.push_back(absl::StrCat("graph: [", absl::StrJoin(ops, ", "), "]"));
    return keys.empty() ? "" : absl::StrCat("batch: {", absl::StrJoin(keys, ", "), "}\n");
  }

 private:
  static std::string OpText(const std::string& name, const std::vector<std::string>& in,
                            const std::vector<std::string>& out, const std::string& draws_as,
                            const YamlNode& params) {
    const auto list = [](const std::vector<std::string>& names) {
      return absl::StrJoin(names, ", ", [](std::string* to, const std::string& one) {
        absl::StrAppend(to, YamlWord(one));
      });
    };
    std::string text =
        absl::StrCat(name, ": {in: [", list(in), "], out: [", list(out), "]", draws_as);
    for (const auto& [key, value] : params.entries)
      absl::StrAppend(&text, ", ", FlowText(key), ": ", FlowText(value));
    return text + "}";
  }

  std::vector<std::string> NamesOf(const std::vector<int>& values) const {
    std::vector<std::string> names;
    for (const int value : values) names.push_back(names_[value]);
    return names;
  }

  // Of what an op reads, the names in the file and those that they get.
  std::vector<std::pair<std::string, std::string>> NewNames(const Node& node) const {
    std::vector<std::pair<std::string, std::string>> names;
    for (size_t i = 0; i < node.in.size(); ++i)
      names.emplace_back(spec_.graph[node.instance].in[i], names_[node.in[i]]);
    return names;
  }

  // Whether reading the rest from top to bottom finds under every name the value that is meant, and
  // at its end under the name of every value that the batch needs.
  bool NamesHold() const {
    std::map<std::string, int> known;
    for (const int value : prefix_.kept) {
      if (!known.emplace(names_[value], value).second) return false;
    }
    for (size_t v = 0; v < flow_.values.size(); ++v) {
      if (IsOwnField(names_[v])) known[names_[v]] = static_cast<int>(v);
    }
    const auto is = [&](int value) {
      const auto found = known.find(names_[value]);
      return found != known.end() && found->second == value;
    };
    for (const int i : rest_) {
      for (const int value : flow_.nodes[i].in) {
        if (!is(value)) return false;
      }
      for (const int value : flow_.nodes[i].out) known[names_[value]] = value;
    }
    for (size_t v = 0; v < flow_.values.size(); ++v) {
      const Value& value = flow_.values[v];
      if ((value.batch_value >= 0 || value.length_value >= 0) && !is(static_cast<int>(v)))
        return false;
    }
    return true;
  }

  // The last value of a name keeps it: batch ops and outputs see that one.
  void GiveNames() {
    std::map<std::string, size_t> last;
    for (size_t v = 0; v < names_.size(); ++v) last[names_[v]] = v;
    std::set<std::string> taken(names_.begin(), names_.end());
    for (size_t v = 0; v < names_.size(); ++v) {
      const std::string name = names_[v];
      if (last[name] == v) continue;
      for (int i = 1; !taken.insert(names_[v]).second; ++i)
        names_[v] = absl::StrCat(name.substr(0, 56), "_", i);
    }
  }

  const PipelineSpec& spec_;
  const Dataflow& flow_;
  const Prefix& prefix_;
  const size_t batch_ops_;
  std::vector<std::string> names_;  // by value
  std::vector<int> rest_;           // nodes, in their order
};

// How many of the ops on batches stand in `graph`: all that are not in `batch: graph`, which come
// behind them.
absl::StatusOr<size_t> BatchOpsOfGraph(const PipelineSpec& spec, const YamlNode& root) {
  const YamlNode* const batch = root.Find("batch");
  const YamlNode* const list = batch != nullptr && batch->is_map() ? batch->Find("graph") : nullptr;
  if (list == nullptr) return spec.batch_graph.size();
  FW_ASSIGN_OR_RETURN(const std::vector<OpSpec> others, ReadOps(*list, /*is_batch=*/true));
  return spec.batch_graph.size() - others.size();
}

// Why nothing of the graph can be done once.
absl::Status NothingToDo(const PipelineSpec& spec, const Dataflow& flow) {
  const auto nothing = [&](const std::string& why, const YamlNode& place) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.Where(), ": ", why,
                     ": there is nothing to do once for all epochs. Cure: `feedwater convert` "
                     "writes the records as they are"));
  };
  for (const Node& node : flow.nodes) {
    if (!node.is_live) continue;
    const OpSpec& op = spec.graph[node.instance];
    if (node.entry->randomness != Randomness::kNone)
      return nothing(absl::StrCat("op '", op.name, "' is random, and no op before it"), op.node);
    if (!flow.values[node.out[0]].is_deterministic) {
      return nothing(
          absl::StrCat("op '", op.name, "' reads what differs between epochs, and no op before it"),
          op.node);
    }
    if (const DecodeOp* decode = node.op->AsDecode(); decode != nullptr && decode->fast_scale()) {
      return nothing(absl::StrCat("op '", op.name,
                                  "' has fast_scale and is carried out together with a random op"),
                     op.node);
    }
  }
  return nothing("its ops before the first random one only store the same numbers in more bytes",
                 spec.dataset);
}

}  // namespace

absl::StatusOr<Continuation> ContinuationOf(const PipelineSpec& spec,
                                            const std::vector<FieldSpec>& fields, int64_t classes) {
  FW_ASSIGN_OR_RETURN(const Dataflow flow,
                      Settle(spec, fields, classes, /*classes_are_known=*/true));
  FW_ASSIGN_OR_RETURN(const Prefix prefix, FindPrefix(flow, fields.size(), spec, classes));
  Continuation continuation;
  for (size_t i = 0; i < flow.nodes.size(); ++i) {
    if (prefix.nodes[i]) continuation.ops.push_back(flow.nodes[i].entry->name);
  }
  if (continuation.ops.empty()) return NothingToDo(spec, flow);
  FW_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(spec.text, spec.file_name));
  FW_ASSIGN_OR_RETURN(const size_t batch_ops, BatchOpsOfGraph(spec, root));
  Continuing continuing(spec, flow, prefix, batch_ops);
  continuing.NameValues();
  for (const int value : prefix.kept) {
    continuation.fields.push_back({continuing.name(value), flow.values[value].spec, ""});
    continuation.sources.push_back(flow.values[value].source);
  }
  for (const auto& [key, value] : root.entries) {
    if (key.scalar == "version" || key.scalar == "dataset") continue;
    if (key.scalar == "graph") {
      continuation.rest += continuing.Graph();
    } else if (key.scalar == "batch") {
      continuation.rest += continuing.Batch(&value);
    } else if (value.kind != YamlNode::Kind::kNull) {
      absl::StrAppend(&continuation.rest, key.scalar, ": ", FlowText(value), "\n");
    }
  }
  if (root.Find("batch") == nullptr) continuation.rest += continuing.Batch(nullptr);
  return continuation;
}

namespace {

// All but the ops on samples that decides an epoch's bytes, line by line.
absl::StatusOr<std::vector<std::string>> LinesBehindSamples(PipelineSpec spec) {
  std::string places;
  for (size_t i = 0; i < spec.batch_graph.size(); ++i) {
    OpSpec& op = spec.batch_graph[i];
    absl::StrAppend(&places, " ", op.batch_place.value_or(i));
    op.draws_as = static_cast<uint32_t>(i);  // says nothing of an op on batches
  }
  FW_ASSIGN_OR_RETURN(const std::string behind, CanonicalBehindSamples(spec));
  const std::string text =
      absl::StrCat("sampler ", SamplerText(spec.sampler), " seed=", spec.sampler.seed,
                   "\nbatch size ", spec.batch_size, "\n", behind, "max_bad_fraction ",
                   ParamType<double>::Text(spec.max_bad_fraction), "\nbatch ops' draws by", places);
  return std::vector<std::string>(absl::StrSplit(text, '\n'));
}

}  // namespace

absl::Status CheckContinues(const PipelineSpec& source, const PipelineSpec& rest) {
  FW_ASSIGN_OR_RETURN(std::vector<std::string> was, LinesBehindSamples(source));
  FW_ASSIGN_OR_RETURN(std::vector<std::string> now, LinesBehindSamples(rest));
  was.resize(std::max(was.size(), now.size()), "nothing");
  now.resize(was.size(), "nothing");
  const auto [before, after] = std::mismatch(was.begin(), was.end(), now.begin());
  if (before == was.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the rest of the pipeline would have '", *after,
                                                 "' in place of '", *before, "'"));
}

}  // namespace feedwater::server
