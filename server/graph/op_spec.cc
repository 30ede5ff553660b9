#include "server/graph/op_spec.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/units.h"
#include "server/graph/field_ranges.h"
#include "server/graph/inner_ops.h"
#include "server/graph/op_caller.h"

namespace feedwater::server {
namespace {

// The names of one or several fields.
absl::StatusOr<std::vector<std::string>> ReadNames(const YamlNode& node, absl::string_view key) {
  std::vector<std::string> names;
  if (node.is_scalar()) {
    FW_RETURN_IF_ERROR(CheckFieldName(node));
    names.push_back(node.scalar);
    return names;
  }
  if (!node.is_list() || node.items.empty()) {
    return node.Error(absl::StrCat("'", key, "' must be a field's name or a list of names, not ",
                                   node.is_list() ? "an empty list" : node.Found()));
  }
  FW_RETURN_IF_ERROR(ReadFieldNames(node, key, &names));
  return names;
}

absl::Status ReadPorts(const OpEntry& entry, OpSpec* spec) {
  const std::string what = absl::StrCat("op '", spec->name, "'");
  const bool is_list = entry.is_repeated || entry.is_free;
  const YamlNode* in = spec->node.is_map() ? spec->node.entries[0].second.Find("in") : nullptr;
  const YamlNode* out = spec->node.is_map() ? spec->node.entries[0].second.Find("out") : nullptr;
  if (in != nullptr) {
    FW_ASSIGN_OR_RETURN(spec->in, ReadNames(*in, "in"));
    if (!is_list && spec->in.size() != entry.inputs.size()) {
      return in->Error(absl::StrCat(what, " takes ", FormatCount(entry.inputs.size(), "field"),
                                    " in 'in', not ", spec->in.size()));
    }
  } else {
    for (const Port& port : entry.inputs) spec->in.push_back(port.field);
  }
  const size_t outputs = is_list ? spec->in.size() : entry.outputs.size();
  if (out == nullptr) {
    for (size_t i = 0; i < outputs; ++i) {
      const std::string& field = is_list ? std::string() : entry.outputs[i].field;
      spec->out.push_back(field.empty() ? spec->in[i] : field);
    }
    return absl::OkStatus();
  }
  FW_ASSIGN_OR_RETURN(spec->out, ReadNames(*out, "out"));
  if (spec->out.size() == outputs) return absl::OkStatus();
  return out->Error(absl::StrCat(what, " writes ", FormatCount(outputs, "field"),
                                 ", but 'out' names ", spec->out.size()));
}

// Splits an entry into name and parameters: `- op`, `- op:`, `- op: {...}`.
absl::StatusOr<OpSpec> SplitEntry(const YamlNode& entry, absl::string_view key) {
  OpSpec spec;
  spec.node = entry;
  spec.params = entry;
  spec.params.kind = YamlNode::Kind::kNull;
  spec.params.entries.clear();
  if (entry.is_scalar()) {
    spec.name = entry.scalar;
    return spec;
  }
  if (!entry.is_map() || entry.entries.empty()) {
    return entry.Error(absl::StrCat("an entry of '", key,
                                    "' is an op such as '- resize: {size: 256}', not ",
                                    entry.KindName()));
  }
  spec.name = entry.entries[0].first.scalar;
  if (entry.entries.size() > 1) {
    const YamlNode& second = entry.entries[1].first;
    return second.Error(absl::StrCat(
        "'", Printable(second.scalar), "' stands beside '", Printable(spec.name),
        "' instead of below it: indent it further, or write '- ", Printable(spec.name), ": {",
        Printable(second.scalar), ": ...}'; each op is its own entry with '- '"));
  }
  const YamlNode& value = entry.entries[0].second;
  if (value.is_map()) {
    spec.params = value;
    spec.params.entries.clear();
    for (const auto& [key, item] : value.entries) {
      if (key.scalar == "in" || key.scalar == "out" || key.scalar == kDrawsAs) continue;
      spec.params.entries.emplace_back(key, item);
    }
  } else if (value.kind != YamlNode::Kind::kNull) {
    spec.params = value;  // which the op's schema refuses, with the map that was meant
  }
  return spec;
}

// `draws_as`, or the op's place.
absl::Status ReadDrawsAs(const OpEntry& entry, size_t place, bool is_batch, OpSpec* spec) {
  spec->draws_as = static_cast<uint32_t>(place);
  const YamlNode* node =
      spec->node.is_map() ? spec->node.entries[0].second.Find(kDrawsAs) : nullptr;
  if (node == nullptr) return absl::OkStatus();
  if (is_batch || entry.randomness != Randomness::kPerSample) {
    return node->Error(
        absl::StrCat("op '", spec->name, "' has '", kDrawsAs, "', ",
                     is_batch ? "which is for the ops of 'graph'" : "and draws nothing"));
  }
  int64_t number = 0;
  FW_RETURN_IF_ERROR(NameParam(ParamType<int64_t>::Read(*node, &number), kDrawsAs));
  const absl::Status checked =
      ParamType<int64_t>::Check(number, Range(0, static_cast<double>(kMaxOps - 1)));
  if (!checked.ok()) return NameParam(node->Error(checked.message()), kDrawsAs);
  spec->draws_as = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

YamlNode Scalar(const YamlNode& place, const std::string& text) {
  YamlNode node = place;
  node.kind = YamlNode::Kind::kScalar;
  node.scalar = text;
  node.entries.clear();
  return node;
}

// The op's files, as far as it names them. Their parameters say the root themselves from then on.
absl::Status ReadFiles(const OpEntry& entry, const OpFileSource& source, OpSpec* spec) {
  if (!spec->params.is_map()) return absl::OkStatus();  // the op's schema refuses it
  for (const std::string& name : entry.files) {
    for (auto& [key, node] : spec->params.entries) {
      if (key.scalar != name) continue;
      OpFile file;
      FW_RETURN_IF_ERROR(NameParam(ParamType<OpFile>::Read(node, &file), name));
      if (file.root.empty()) file.root = source.root;
      if (file.root.empty() && source.reader != nullptr) {
        return node.Error(absl::StrCat("op '", spec->name, "': '", name,
                                       "' needs a root, since the dataset has none: {root: "
                                       "ROOT, path: ",
                                       Printable(file.path),
                                       "}, with a root that feedwater.yaml declares"));
      }
      if (source.reader != nullptr) {
        auto content = source.reader->Read(file.root, file.path);
        if (!content.ok()) {
          return Annotate(content.status(),
                          absl::StrCat(node.Where(), ": op '", spec->name, "': '", name, "'"));
        }
        file.content = *std::move(content);
      }
      if (!file.root.empty()) {
        YamlNode map = node;
        map.kind = YamlNode::Kind::kMap;
        map.entries = {{Scalar(node, "root"), Scalar(node, file.root)},
                       {Scalar(node, "path"), Scalar(node, file.path)}};
        node = std::move(map);
      }
      spec->files[name] = std::move(file);
    }
  }
  return absl::OkStatus();
}

// Two ops with one number would draw the same.
absl::Status CheckDrawsDiffer(const std::vector<OpSpec>& specs) {
  std::vector<const OpSpec*> by_number(kMaxOps, nullptr);
  for (const OpSpec& spec : specs) {
    if (Registry<OpEntry>::Get().Find(spec.name)->randomness != Randomness::kPerSample) continue;
    if (RunsOnBatches(spec)) continue;  // by its place among the ops on batches
    const OpSpec*& other = by_number[spec.draws_as];
    if (other != nullptr) {
      return PlaceOf(spec, kDrawsAs, 0)
          .Error(absl::StrCat("op '", spec.name, "' draws as number ", spec.draws_as, ", as op '",
                              other->name, "' does (", other->node.Where(),
                              "); give each random op a '", kDrawsAs, "' of its own"));
    }
    other = &spec;
  }
  return absl::OkStatus();
}

const YamlNode& NameNode(const YamlNode& entry) {
  return entry.is_map() ? entry.entries[0].first : entry;
}

}  // namespace

absl::Status ReadFieldNames(const YamlNode& list, absl::string_view key,
                            std::vector<std::string>* names) {
  absl::flat_hash_set<absl::string_view> seen;
  for (const YamlNode& item : list.items) {
    FW_RETURN_IF_ERROR(CheckFieldName(item));
    if (!seen.insert(item.scalar).second)
      return item.Error(absl::StrCat("'", key, "' names '", item.scalar, "' twice"));
    names->push_back(item.scalar);
  }
  return absl::OkStatus();
}

absl::Status CheckFieldName(const YamlNode& node) {
  if (!node.is_scalar())
    return node.Error(absl::StrCat("a field's name must be a word, not ", node.KindName()));
  const std::string& name = node.scalar;
  bool good = !name.empty() && name.size() <= 64 &&
              !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
  for (char c : name)
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_');
  if (good) return absl::OkStatus();
  return node.Error(
      absl::StrCat("'", Printable(name),
                   "' is no name for a field: letters, digits and '_', at most 64, not a "
                   "digit first"));
}

bool IsOwnField(absl::string_view name) {
  return name == "sample_id" || name == "position" || name == "is_real";
}

const YamlNode& PlaceOf(const OpSpec& spec, absl::string_view key, size_t i) {
  if (!spec.node.is_map() || spec.node.entries.empty()) return spec.node;
  const YamlNode* node = spec.node.entries[0].second.Find(key);
  if (node == nullptr) return spec.node.entries[0].first;
  return node->is_list() && i < node->items.size() ? node->items[i] : *node;
}

bool RunsOnBatches(const OpSpec& op) {
  const YamlNode* const batch = op.name == kOwnOp ? op.params.Find("batch") : nullptr;
  bool value = false;
  return batch != nullptr && ParamType<bool>::Read(*batch, &value).ok() && value;
}

namespace {

absl::StatusOr<OpSpec> ReadOp(const YamlNode& item, size_t place, bool is_batch,
                              const OpFileSource& source, absl::string_view key) {
  FW_ASSIGN_OR_RETURN(OpSpec spec, SplitEntry(item, key));
  const OpEntry* entry = Registry<OpEntry>::Get().Find(spec.name);
  if (entry == nullptr) return NameNode(item).Error(UnknownOp(spec.name));
  if (is_batch ? !entry->create_batch : !entry->create) {
    return NameNode(item).Error(
        is_batch
            ? absl::StrCat("op '", spec.name, "' works on single samples and belongs in 'graph'")
            : absl::StrCat("op '", spec.name,
                           "' works on whole batches and belongs in 'batch: {graph: [...]}'"));
  }
  FW_RETURN_IF_ERROR(ReadPorts(*entry, &spec));
  FW_RETURN_IF_ERROR(ReadDrawsAs(*entry, place, is_batch, &spec));
  // Ops of a combinator write the places of what they read, and not these.
  for (size_t i = 0; i < spec.out.size() && key != kInnerOps; ++i) {
    if (IsOwnField(spec.out[i])) {
      return PlaceOf(spec, "out", i)
          .Error(absl::StrCat("'", spec.out[i],
                              "' is a field of Feedwater's own and cannot be "
                              "written; choose another name for 'out'"));
    }
  }
  FW_RETURN_IF_ERROR(ReadFiles(*entry, source, &spec));
  FW_RETURN_IF_ERROR(entry->canonical(spec.params, spec.files).status());
  if (entry->is_combinator()) {
    // Not null, as it is required.
    FW_ASSIGN_OR_RETURN(spec.inner, ReadInnerOps(*spec.params.Find(kInnerOps)));
    spec.count += CountOps(spec.inner) * RoundsOf(spec.params);
  }
  return spec;
}

// Of the ops that one entry with a range stands for, each writes fields of its own.
absl::Status CheckWrittenOnce(absl::Span<const OpSpec> specs) {
  if (specs.size() < 2) return absl::OkStatus();
  absl::flat_hash_set<absl::string_view> written;
  for (const OpSpec& spec : specs) {
    for (size_t i = 0; i < spec.out.size(); ++i) {
      if (written.insert(spec.out[i]).second) continue;
      return PlaceOf(spec, "out", i)
          .Error(absl::StrCat("op '", spec.name, "' stands for ", specs.size(),
                              " ops, of which several write '", spec.out[i],
                              "': each name in 'out' takes a range such as view_{0..",
                              specs.size() - 1, "}, and ranges of one op share no field"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t CountOps(const std::vector<OpSpec>& ops) {
  int64_t count = 0;
  for (const OpSpec& op : ops) count += op.count;
  return count;
}

absl::StatusOr<std::vector<OpSpec>> ReadOps(const YamlNode& list, bool is_batch,
                                            const OpFileSource& source, absl::string_view key) {
  if (key.empty()) key = is_batch ? "batch: graph" : "graph";
  std::vector<OpSpec> specs;
  int64_t count = 0;
  if (list.kind == YamlNode::Kind::kNull) return specs;
  if (!list.is_list()) {
    return list.Error(
        absl::StrCat("'", key, "' must be a list of ops, each with '- ', not ", list.Found()));
  }
  if (list.items.size() > kMaxOps) {
    return list.Error(
        absl::StrCat("'", key, "' has ", list.items.size(), " ops, over the limit of ", kMaxOps));
  }
  for (const YamlNode& item : list.items) {
    FW_RETURN_IF_ERROR(CheckNesting(item));
    FW_ASSIGN_OR_RETURN(const std::vector<YamlNode> entries, ExpandEntry(item));
    const size_t first = specs.size();
    for (const YamlNode& entry : entries) {
      FW_ASSIGN_OR_RETURN(OpSpec spec, ReadOp(entry, specs.size(), is_batch, source, key));
      count += spec.count;
      if (count > static_cast<int64_t>(kMaxOps)) {
        return item.Error(absl::StrCat("'", key, "' has more than ", kMaxOps,
                                       " ops from here on, those of combinators counted as often "
                                       "as they are repeated"));
      }
      specs.push_back(std::move(spec));
    }
    FW_RETURN_IF_ERROR(CheckWrittenOnce(absl::MakeSpan(specs).subspan(first)));
  }
  FW_RETURN_IF_ERROR(CheckDrawsDiffer(specs));
  return specs;
}

}  // namespace feedwater::server
