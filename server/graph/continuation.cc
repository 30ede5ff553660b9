#include "server/graph/continuation.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/schema.h"
#include "server/base/yaml.h"
#include "server/base/yaml_word.h"
#include "server/graph/dataflow.h"
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
  Continuing(const PipelineSpec& spec, const Dataflow& flow, const Prefix& prefix)
      : spec_(spec), flow_(flow), prefix_(prefix), names_(flow.values.size()) {
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

  std::string Graph() const {
    if (rest_.empty()) return "";
    std::string text = "graph:\n";
    for (size_t place = 0; place < rest_.size(); ++place) {
      const Node& node = flow_.nodes[rest_[place]];
      const auto list = [this](const std::vector<int>& values) {
        return absl::StrCat("[",
                            absl::StrJoin(values, ", ",
                                          [this](std::string* out, int value) {
                                            absl::StrAppend(out, names_[value]);
                                          }),
                            "]");
      };
      absl::StrAppend(&text, "  - ", node.entry->name, ": {in: ", list(node.in),
                      ", out: ", list(node.out));
      if (node.entry->randomness == Randomness::kPerSample && node.draws_as != place)
        absl::StrAppend(&text, ", ", kDrawsAs, ": ", node.draws_as);
      YamlNode params = spec_.graph[node.instance].params;
      if (node.entry->is_combinator()) RenameInnerFields(NewNames(node), &params);
      for (const auto& [key, value] : params.entries)
        absl::StrAppend(&text, ", ", FlowText(key), ": ", FlowText(value));
      absl::StrAppend(&text, "}\n");
    }
    return text;
  }

 private:
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
  std::vector<std::string> names_;  // by value
  std::vector<int> rest_;           // nodes, in their order
};

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
  Continuing continuing(spec, flow, prefix);
  continuing.NameValues();
  for (const int value : prefix.kept) {
    continuation.fields.push_back({continuing.name(value), flow.values[value].spec, ""});
    continuation.sources.push_back(flow.values[value].source);
  }
  FW_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(spec.text, spec.file_name));
  for (const auto& [key, value] : root.entries) {
    if (key.scalar == "version" || key.scalar == "dataset") continue;
    if (key.scalar == "graph") {
      continuation.rest += continuing.Graph();
    } else if (value.kind != YamlNode::Kind::kNull) {
      absl::StrAppend(&continuation.rest, key.scalar, ": ", FlowText(value), "\n");
    }
  }
  return continuation;
}

}  // namespace feedwater::server
