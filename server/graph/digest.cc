#include "server/graph/digest.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/graph/op_schema.h"

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

absl::Status AppendOps(absl::string_view key, const std::vector<OpSpec>& ops, std::string* out) {
  for (size_t i = 0; i < ops.size(); ++i) {
    const OpSpec& op = ops[i];
    const OpEntry* entry = Registry<OpEntry>::Get().Find(op.name);
    if (entry == nullptr) return op.node.Error(Registry<OpEntry>::Get().Unknown(op.name));
    FW_ASSIGN_OR_RETURN(const std::string params, entry->canonical(op.params));
    absl::StrAppend(out, key, " ", op.name, "(", absl::StrJoin(op.in, ","), ")->(",
                    absl::StrJoin(op.out, ","), ") ", params);
    if (op.draws_as != i) absl::StrAppend(out, " draws_as=", op.draws_as);
    absl::StrAppend(out, "\n");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CanonicalPipeline(const PipelineSpec& spec) {
  std::string text = absl::StrCat("feedwater pipeline ", kMeaning, "\ndataset ");
  AppendNode(spec.dataset, &text);
  absl::StrAppend(&text, "\nsampler shuffle=", Quoted(spec.sampler.shuffle),
                  " last=", Quoted(spec.sampler.last), " shard=", Quoted(spec.sampler.shard));
  // Block size means something for `block` alone.
  if (spec.sampler.shuffle == "block")
    absl::StrAppend(&text, " block_records=", spec.sampler.block_records);
  absl::StrAppend(&text, "\n");
  FW_RETURN_IF_ERROR(AppendOps("op", spec.graph, &text));
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

std::string Digest128(absl::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace feedwater::server
