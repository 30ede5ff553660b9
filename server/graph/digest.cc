#include "server/graph/digest.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/graph/inner_ops.h"
#include "server/source/dataset.h"

namespace feedwater::server {
namespace {

// To be raised when the same file begins to mean other bytes.
constexpr int kMeaning = 2;

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

// JSON with sorted keys; scalars are strings, as YAML has written them.
void AppendNode(const YamlNode& node, std::string* out) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      absl::StrAppend(out, "null");
      return;
    case YamlNode::Kind::kScalar:
      absl::StrAppend(out, Quoted(node.scalar));
      return;
    case YamlNode::Kind::kList:
      absl::StrAppend(out, "[");
      for (const YamlNode& item : node.items) {
        AppendNode(item, out);
        absl::StrAppend(out, ",");
      }
      absl::StrAppend(out, "]");
      return;
    case YamlNode::Kind::kMap: {
      std::vector<const std::pair<YamlNode, YamlNode>*> entries;
      for (const auto& entry : node.entries) entries.push_back(&entry);
      std::sort(entries.begin(), entries.end(),
                [](auto* a, auto* b) { return a->first.scalar < b->first.scalar; });
      absl::StrAppend(out, "{");
      for (const auto* entry : entries) {
        absl::StrAppend(out, Quoted(entry->first.scalar), ":");
        AppendNode(entry->second, out);
        absl::StrAppend(out, ",");
      }
      absl::StrAppend(out, "}");
      return;
    }
  }
}

// An output with nothing said of it is its name alone, as it was before anything could be.
std::string OutputText(const OutputSpec& output) {
  std::string text = output.name;
  if (output.max_rows.has_value()) absl::StrAppend(&text, "(max_rows=", *output.max_rows, ")");
  if (output.pad_to.has_value()) {
    absl::StrAppend(&text, "(pad_to=", *output.pad_to,
                    " pad_value=", ParamType<double>::Text(output.pad_value), ")");
  }
  return text;
}

}  // namespace

std::string JointText(const OpEntry& op, size_t inputs) {
  return op.is_joint && inputs > 1 ? " joint" : "";
}

namespace {

absl::Status AppendOps(absl::string_view key, const std::vector<OpSpec>& ops, std::string* out) {
  for (size_t i = 0; i < ops.size(); ++i) {
    const OpSpec& op = ops[i];
    const OpEntry* entry = Registry<OpEntry>::Get().Find(op.name);
    if (entry == nullptr) return op.node.Error(Registry<OpEntry>::Get().Unknown(op.name));
    FW_ASSIGN_OR_RETURN(const std::string params, entry->canonical(op.params, op.files));
    absl::StrAppend(out, key, " ", op.name, "(", absl::StrJoin(op.in, ","), ")->(",
                    absl::StrJoin(op.out, ","), ") ", params);
    if (op.draws_as != i) absl::StrAppend(out, " draws_as=", op.draws_as);
    absl::StrAppend(out, JointText(*entry, op.in.size()));
    if (!op.inner.empty()) absl::StrAppend(out, " inner ", InnerFieldsText(op, op.in));
    absl::StrAppend(out, "\n");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CanonicalPipeline(const PipelineSpec& spec) {
  std::string text = absl::StrCat("feedwater pipeline ", kMeaning, "\ndataset ");
  // Who gives the records is not what they are: that is in the dataset's digest.
  if (IsOfUser(spec.dataset)) {
    absl::StrAppend(&text, "given");
  } else {
    AppendNode(spec.dataset, &text);
  }
  absl::StrAppend(&text, "\nsampler ", SamplerText(spec.sampler), "\n");
  FW_RETURN_IF_ERROR(AppendOps("op", spec.graph, &text));
  FW_ASSIGN_OR_RETURN(const std::string behind, CanonicalBehindSamples(spec));
  return text + behind;
}

absl::StatusOr<std::string> CanonicalBehindSamples(const PipelineSpec& spec) {
  std::string text;
  FW_RETURN_IF_ERROR(AppendOps("batch op", spec.batch_graph, &text));
  absl::StrAppend(
      &text, "outputs ",
      absl::StrJoin(spec.outputs, ",",
                    [](std::string* out, const OutputSpec& output) { *out += OutputText(output); }),
      "\non_bad_sample ", BadSamplePolicyName(spec.on_bad_sample),
      "\nlimits max_pixels=", spec.limits.max_pixels, " max_scans=", spec.limits.max_scans,
      " max_decode_ms=", spec.limits.max_decode_ms);
  // A key that came later: files that do not give it mean what they meant before.
  if (spec.limits.max_sample_ms != ImageLimits{}.max_sample_ms)
    absl::StrAppend(&text, " max_sample_ms=", spec.limits.max_sample_ms);
  absl::StrAppend(&text, "\n");
  return text;
}

std::string SamplerText(const SamplerSpec& sampler) {
  std::string text = absl::StrCat("shuffle=", Quoted(sampler.shuffle),
                                  " last=", Quoted(sampler.last), " shard=", Quoted(sampler.shard));
  // Block size means something for `block` alone.
  if (sampler.shuffle == "block") absl::StrAppend(&text, " block_records=", sampler.block_records);
  return text;
}

std::string Digest128(absl::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace feedwater::server
