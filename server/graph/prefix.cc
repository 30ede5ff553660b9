#include "server/graph/prefix.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/key.h"
#include "server/graph/digest.h"
#include "server/graph/fusion.h"
#include "server/graph/geometry_op.h"

namespace feedwater::server {
namespace {

// To be raised when the same ops begin to mean other bytes.
constexpr int kMeaning = 3;

constexpr int64_t kSmallFieldBytes = 64;

class PrefixFinder {
 public:
  PrefixFinder(const Dataflow& flow, size_t dataset_fields)
      : flow_(flow), dataset_fields_(dataset_fields), nodes_(flow.nodes.size()) {}

  Prefix Find() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = flow_.nodes[i];
      nodes_[i] = node.is_live && flow_.values[node.out[0]].is_deterministic;
    }
    LeaveOutPartsOfScaledDecodes();
    // Backwards: what reads a node has been looked at before it.
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (nodes_[i] && IsLast(flow_.nodes[i]) && IsCheapGrowth(flow_.nodes[i])) nodes_[i] = false;
    }
    Prefix prefix;
    prefix.nodes = nodes_;
    for (size_t v = 0; v < flow_.values.size(); ++v) {
      if (IsKept(v)) prefix.kept.push_back(static_cast<int>(v));
    }
    return prefix;
  }

 private:
  // A decode that scales gives what the resize fused with it asks for: it is in the prefix together
  // with that resize, or not at all.
  void LeaveOutPartsOfScaledDecodes() {
    std::vector<bool> live;
    for (const Node& node : flow_.nodes) live.push_back(node.is_live);
    for (const FusedRun& run : FindRuns(flow_, live, /*fuse=*/true)) {
      const DecodeOp* decode = flow_.nodes[run.nodes[0]].op->AsDecode();
      if (decode == nullptr || !decode->fast_scale()) continue;
      const auto resize = std::find_if(run.nodes.begin(), run.nodes.end(), [&](int node) {
        const GeometryOp* op = flow_.nodes[node].op->AsGeometry();
        return op != nullptr && op->resamples();
      });
      if (resize == run.nodes.end() || nodes_[*resize]) continue;
      for (int node : run.nodes) nodes_[node] = false;
    }
  }

  bool IsLast(const Node& node) const {
    return std::none_of(node.out.begin(), node.out.end(), [&](int value) {
      const std::vector<int>& readers = flow_.values[value].readers;
      return std::any_of(readers.begin(), readers.end(), [&](int r) { return nodes_[r]; });
    });
  }

  bool IsCheapGrowth(const Node& node) const {
    if (!node.op->only_stores()) return false;
    int64_t in = 0, out = 0;
    if (Bytes(node.in, &in) && Bytes(node.out, &out)) return out >= in;
    // As many numbers go out as come in.
    return node.op->AsPixel() != nullptr && DTypeSize(flow_.values[node.out[0]].spec.dtype) >=
                                                DTypeSize(flow_.values[node.in[0]].spec.dtype);
  }

  bool Bytes(const std::vector<int>& values, int64_t* sum) const {
    for (int value : values) {
      const absl::StatusOr<int64_t> bytes = flow_.values[value].spec.ByteSize();
      if (!bytes.ok() || __builtin_add_overflow(*sum, *bytes, sum)) return false;
    }
    return true;
  }

  bool IsKept(size_t v) const {
    const Value& value = flow_.values[v];
    if (value.source >= static_cast<int>(dataset_fields_)) return false;  // known without a record
    if (value.source < 0 && !IsMadeByPrefix(v)) return false;
    if (value.batch_value >= 0 || value.length_value >= 0) return true;
    if (value.source >= 0) {
      const absl::StatusOr<int64_t> bytes = value.spec.ByteSize();
      if (bytes.ok() && *bytes <= kSmallFieldBytes) return true;
    }
    return std::any_of(value.readers.begin(), value.readers.end(),
                       [&](int reader) { return !nodes_[reader]; });
  }

  bool IsMadeByPrefix(size_t v) const {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const std::vector<int>& out = flow_.nodes[i].out;
      if (std::find(out.begin(), out.end(), static_cast<int>(v)) != out.end()) return nodes_[i];
    }
    return false;
  }

  const Dataflow& flow_;
  const size_t dataset_fields_;
  std::vector<bool> nodes_;
};

// What the prefix does, with values named by where they come from: what a pipeline calls the fields
// in between does not matter, nor what stands behind the cut.
absl::StatusOr<std::string> CanonicalPrefix(const Prefix& prefix, const Dataflow& flow,
                                            size_t dataset_fields, const PipelineSpec& spec,
                                            int64_t classes) {
  std::vector<std::string> names(flow.values.size());
  std::string text =
      absl::StrCat("feedwater prefix ", kMeaning, "\nlimits max_pixels=", spec.limits.max_pixels,
                   " max_scans=", spec.limits.max_scans,
                   " max_decode_ms=", spec.limits.max_decode_ms, "\nclasses ", classes, "\n");
  for (size_t v = 0; v < flow.values.size() && flow.values[v].source >= 0; ++v) {
    names[v] = flow.values[v].name;
    if (v < dataset_fields)
      absl::StrAppend(&text, "field ", names[v], " ", flow.values[v].spec.ToString(), "\n");
  }
  int number = 0;
  for (size_t i = 0; i < flow.nodes.size(); ++i) {
    if (!prefix.nodes[i]) continue;
    const Node& node = flow.nodes[i];
    const OpSpec& op = spec.graph[node.instance];
    FW_ASSIGN_OR_RETURN(const std::string params, node.entry->canonical(op.params, op.files));
    absl::StrAppend(
        &text, "op ", number, " ", node.entry->name, "(",
        absl::StrJoin(node.in, ",", [&](std::string* out, int value) { *out += names[value]; }),
        ") ", params, JointText(*node.entry, node.in.size()), "\n");
    for (size_t port = 0; port < node.out.size(); ++port)
      names[node.out[port]] = absl::StrCat("#", number, ".", port);
    ++number;
  }
  text += "kept";
  for (int value : prefix.kept) absl::StrAppend(&text, " ", names[value]);
  return text;
}

}  // namespace

absl::StatusOr<Prefix> FindPrefix(const Dataflow& flow, size_t dataset_fields,
                                  const PipelineSpec& spec, int64_t classes) {
  Prefix prefix = PrefixFinder(flow, dataset_fields).Find();
  FW_ASSIGN_OR_RETURN(const std::string text,
                      CanonicalPrefix(prefix, flow, dataset_fields, spec, classes));
  prefix.digest = Key("prefix").Add("canonical", text).Name();
  return prefix;
}

}  // namespace feedwater::server
