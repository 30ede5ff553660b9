#include "server/graph/inner_ops.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/graph/op_spec.h"

namespace feedwater::server {
namespace {

// What stands below an op's name, or null.
const YamlNode* ValueOf(const YamlNode& entry) {
  return entry.is_map() && !entry.entries.empty() ? &entry.entries[0].second : nullptr;
}

int NestingOf(const YamlNode& entry, int depth) {
  const YamlNode* value = ValueOf(entry);
  const YamlNode* list = value != nullptr && value->is_map() ? value->Find(kInnerOps) : nullptr;
  if (list == nullptr || !list->is_list() || depth > kMaxNesting) return depth;
  int deepest = depth + 1;
  for (const YamlNode& item : list->items) deepest = std::max(deepest, NestingOf(item, depth + 1));
  return deepest;
}

absl::Status CheckInner(const OpSpec& spec) {
  const OpEntry& entry = *Registry<OpEntry>::Get().Find(spec.name);
  const auto refuse = [&](absl::string_view key, absl::string_view why) {
    return PlaceOf(spec, key, 0).Error(absl::StrCat("op '", spec.name, "' in 'ops' ", why));
  };
  const YamlNode* value = ValueOf(spec.node);
  const auto has = [&](absl::string_view key) {
    return value != nullptr && value->is_map() && value->Find(key) != nullptr;
  };
  if (has("out")) return refuse("out", "has 'out': ops in 'ops' write the fields that they read");
  if (has(kDrawsAs)) return refuse(kDrawsAs, "has 'draws_as', which is for the ops of 'graph'");
  if (entry.DecodesFiles()) return refuse("", "decodes: put it into 'graph' before this");
  if (!entry.files.empty()) return refuse("", "is made from a file: put it into 'graph' itself");
  if (RunsOnBatches(spec))
    return refuse("", "has 'batch: true': ops in 'ops' work on single samples");
  if (spec.in.size() != spec.out.size() || (has("in") && spec.in != spec.out)) {
    return refuse("", absl::StrCat("writes [", absl::StrJoin(spec.out, ", "), "] and reads [",
                                   absl::StrJoin(spec.in, ", "),
                                   "]: ops in 'ops' write the fields that they read"));
  }
  return absl::OkStatus();
}

bool SaysIn(const OpSpec& spec) {
  const YamlNode* value = ValueOf(spec.node);
  return value != nullptr && value->is_map() && value->Find("in") != nullptr;
}

}  // namespace

absl::Status CheckNesting(const YamlNode& entry) {
  if (NestingOf(entry, 0) <= kMaxNesting) return absl::OkStatus();
  return entry.Error(
      absl::StrCat("ops with 'ops' stand in one another more than ", kMaxNesting, " deep"));
}

absl::StatusOr<std::vector<OpSpec>> ReadInnerOps(const YamlNode& list) {
  if (!list.is_list() || list.items.empty() || list.items.size() > kMaxInnerOps) {
    return list.Error(
        absl::StrCat("must be a list of 1 to ", kMaxInnerOps, " ops, each with '- ', not ",
                     list.is_list() ? absl::StrCat("one of ", list.items.size()) : list.Found()));
  }
  FW_ASSIGN_OR_RETURN(std::vector<OpSpec> specs, ReadOps(list, /*is_batch=*/false, {}, kInnerOps));
  // Ranges within have been expanded with the entry around it.
  if (specs.size() != list.items.size())
    return list.Error("must not have ranges of fields that differ from those of the op around it");
  for (const OpSpec& spec : specs) FW_RETURN_IF_ERROR(CheckInner(spec));
  return specs;
}

int64_t RoundsOf(const YamlNode& params) {
  const YamlNode* times = params.Find(kRounds);
  int64_t rounds = 1;
  return times != nullptr && ParamType<int64_t>::Read(*times, &rounds).ok() ? rounds : 1;
}

std::vector<std::string> InnerFields(const OpSpec& inner, absl::Span<const std::string> fields) {
  if (SaysIn(inner)) return inner.in;
  const OpEntry* entry = Registry<OpEntry>::Get().Find(inner.name);
  if (entry->is_joint || entry->is_combinator()) return {fields.begin(), fields.end()};
  return {fields[0]};
}

std::string InnerFieldsText(const OpSpec& combinator, absl::Span<const std::string> fields) {
  std::string text = "{";
  for (const OpSpec& inner : combinator.inner) {
    const std::vector<std::string> own = InnerFields(inner, fields);
    absl::StrAppend(&text, "(", absl::StrJoin(own, ","), ")");
    if (!inner.inner.empty()) absl::StrAppend(&text, InnerFieldsText(inner, own));
  }
  return absl::StrCat(text, "}");
}

absl::StatusOr<std::vector<InnerOp>> MakeInnerOps(const InnerOps& ops,
                                                  absl::Span<const std::string> fields) {
  std::vector<InnerOp> made;
  int64_t tables = 0;
  for (const OpSpec& spec : ops.specs) {
    InnerOp inner;
    inner.entry = Registry<OpEntry>::Get().Find(spec.name);
    inner.where = spec.node.Where();
    inner.names = InnerFields(spec, fields);
    if (!SaysIn(spec) && spec.in.size() != 1) {
      return PlaceOf(spec, "", 0)
          .Error(absl::StrCat("op '", spec.name, "' takes ", spec.in.size(),
                              " fields: name them in 'in'"));
    }
    for (size_t i = 0; i < inner.names.size(); ++i) {
      const auto found = absl::c_find(fields, inner.names[i]);
      if (found == fields.end()) {
        return PlaceOf(spec, "in", i)
            .Error(absl::StrCat("op '", spec.name, "' reads '", inner.names[i],
                                "', which is none of the fields of the op around it: [",
                                absl::StrJoin(fields, ", "), "]"));
      }
      inner.fields.push_back(static_cast<size_t>(found - fields.begin()));
    }
    FW_ASSIGN_OR_RETURN(inner.op, MakeOp(*inner.entry, spec.params, {}, inner.names, &tables));
    made.push_back(std::move(inner));
  }
  return made;
}

void RenameInnerFields(FieldNames names, YamlNode* params) {
  for (auto& [key, list] : params->entries) {
    if (key.scalar != kInnerOps) continue;
    for (YamlNode& item : list.items) {
      if (!item.is_map() || item.entries.empty()) continue;
      YamlNode& value = item.entries[0].second;
      if (!value.is_map()) continue;
      for (auto& [port, field] : value.entries) {
        if (port.scalar != "in") continue;
        const auto rename = [&](YamlNode* node) {
          for (const auto& [from, to] : names) {
            if (node->scalar != from) continue;
            node->scalar = to;
            return;
          }
        };
        if (field.is_scalar()) rename(&field);
        for (YamlNode& one : field.items) rename(&one);
      }
      RenameInnerFields(names, &value);
    }
  }
}

const char* const ParamType<InnerOps>::kName = "list of ops";
const char* const ParamType<InnerOps>::kJson =
    R"({"type":"array","items":{"$ref":"#/definitions/inner_op"},"minItems":1,"maxItems":32})";
absl::Status ParamType<InnerOps>::Read(const YamlNode& node, InnerOps* value) {
  FW_ASSIGN_OR_RETURN(value->specs, ReadInnerOps(node));
  return absl::OkStatus();
}
// With lengths, so that no text of a parameter can be taken for another op. The fields stand in
// InnerFieldsText.
std::string ParamType<InnerOps>::Text(const InnerOps& value) {
  std::string text = "[";
  for (const OpSpec& spec : value.specs) {
    const OpEntry* entry = Registry<OpEntry>::Get().Find(spec.name);
    const std::string params = entry->canonical(spec.params, {}).value_or("");  // read once already
    absl::StrAppend(&text, spec.name, " ", params.size(), ":", params, ";");
  }
  return absl::StrCat(text, "]");
}
absl::Status ParamType<InnerOps>::Check(const InnerOps&, const Constraint&) {
  return absl::OkStatus();
}

}  // namespace feedwater::server
