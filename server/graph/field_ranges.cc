#include "server/graph/field_ranges.h"

#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/graph/inner_ops.h"

namespace feedwater::server {
namespace {

// A name in three parts, or, without a range, the name as its first part.
struct Name {
  absl::string_view before, after;
  int64_t first = 0, last = -1;

  int64_t count() const { return last - first + 1; }
  std::string At(int64_t i) const { return absl::StrCat(before, first + i, after); }
};

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= 4 && (text == "0" || text[0] != '0') &&
         absl::c_all_of(text, [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// What is no range is left for whoever checks names.
absl::StatusOr<Name> Parse(const YamlNode& node) {
  const absl::string_view text = node.scalar;
  Name name{.before = text, .after = {}};
  const size_t open = text.find('{'), close = text.rfind('}');
  if (!node.is_scalar() || open == text.npos || close == text.npos || close < open) return name;
  const std::vector<absl::string_view> ends =
      absl::StrSplit(text.substr(open + 1, close - open - 1), "..");
  const auto refuse = [&](absl::string_view why) {
    return node.Error(absl::StrCat("'", Printable(text), "' ", why,
                                   "; a range of fields is such as view_{0..9}"));
  };
  if (ends.size() != 2 || !IsNumber(ends[0]) || !IsNumber(ends[1]))
    return refuse("has braces without two whole numbers");
  name.before = text.substr(0, open);
  name.after = text.substr(close + 1);
  if (!absl::SimpleAtoi(ends[0], &name.first) || !absl::SimpleAtoi(ends[1], &name.last))
    return refuse("has braces without two whole numbers");
  if (name.first > name.last) return refuse("has its range the wrong way round");
  if (name.count() > kMaxRange)
    return refuse(absl::StrCat("stands for more than ", kMaxRange, " fields"));
  return name;
}

// A file is bounded, and what it stands for must be, too.
constexpr int64_t kMaxNodes = 20'000;

int64_t CountNodes(const YamlNode& node) {
  int64_t count = 1;
  for (const YamlNode& item : node.items) count += CountNodes(item);
  for (const auto& [key, value] : node.entries) count += CountNodes(key) + CountNodes(value);
  return count;
}

absl::Status TooLarge(const YamlNode& node, int64_t count) {
  return node.Error(absl::StrCat("is too large to be meant ", count, " times"));
}

// Calls f for each node of a name in `in` and `out` of what stands below an op's name,
// and in the ops of a combinator.
template <typename Node, typename F>
absl::Status EachName(Node& value, F f) {
  for (auto& [key, field] : value.entries) {
    if (key.scalar == kInnerOps && field.is_list()) {
      for (auto& op : field.items) {
        if (op.is_map() && !op.entries.empty() && op.entries[0].second.is_map())
          FW_RETURN_IF_ERROR(EachName(op.entries[0].second, f));
      }
    }
    if (key.scalar != "in" && key.scalar != "out") continue;
    if (field.is_scalar()) FW_RETURN_IF_ERROR(f(field));
    for (auto& item : field.items) FW_RETURN_IF_ERROR(f(item));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<YamlNode>> ExpandEntry(const YamlNode& entry) {
  std::vector<YamlNode> expanded = {entry};
  if (!entry.is_map() || entry.entries.empty() || !entry.entries[0].second.is_map())
    return expanded;
  int64_t count = 0;
  std::string longest;
  FW_RETURN_IF_ERROR(EachName(entry.entries[0].second, [&](const YamlNode& node) -> absl::Status {
    FW_ASSIGN_OR_RETURN(const Name name, Parse(node));
    if (name.count() == 0) return absl::OkStatus();
    if (count != 0 && name.count() != count) {
      return node.Error(absl::StrCat("'", Printable(node.scalar), "' stands for ", name.count(),
                                     " fields and '", Printable(longest), "' for ", count,
                                     ": ranges of one op go side by side"));
    }
    count = name.count();
    longest = node.scalar;
    return absl::OkStatus();
  }));
  if (count == 0) return expanded;
  if (CountNodes(entry) * count > kMaxNodes) return TooLarge(entry, count);
  expanded.assign(static_cast<size_t>(count), entry);
  for (int64_t i = 0; i < count; ++i) {
    YamlNode& value = expanded[static_cast<size_t>(i)].entries[0].second;
    FW_RETURN_IF_ERROR(EachName(value, [&](YamlNode& node) -> absl::Status {
      FW_ASSIGN_OR_RETURN(const Name name, Parse(node));
      if (name.count() > 0) node.scalar = name.At(i);
      return absl::OkStatus();
    }));
    // They draw as numbers one after the other.
    for (auto& [key, number] : value.entries) {
      int64_t draws_as = 0;
      if (key.scalar == "draws_as" && absl::SimpleAtoi(number.scalar, &draws_as) &&
          draws_as <= kMaxRange)
        number.scalar = absl::StrCat(draws_as + i);
    }
  }
  return expanded;
}

absl::StatusOr<YamlNode> ExpandOutputs(const YamlNode& outputs) {
  YamlNode expanded = outputs;
  expanded.items.clear();
  int64_t nodes = 0;
  for (const YamlNode& output : outputs.items) {
    const bool has_params = output.is_map() && output.entries.size() == 1;
    FW_ASSIGN_OR_RETURN(const Name name, Parse(has_params ? output.entries[0].first : output));
    if (name.count() == 0) expanded.items.push_back(output);
    nodes += CountNodes(output) * std::max<int64_t>(1, name.count());
    if (nodes > kMaxNodes) return TooLarge(output, name.count());
    for (int64_t i = 0; i < name.count(); ++i) {
      expanded.items.push_back(output);
      YamlNode& one = expanded.items.back();
      (has_params ? one.entries[0].first : one).scalar = name.At(i);
    }
  }
  return expanded;
}

}  // namespace feedwater::server
