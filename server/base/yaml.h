// YAML as Feedwater accepts it: a tree of maps, lists and scalars in which every node knows its
// file, line and column. Parsing is yaml-cpp's; this reader walks its events and refuses what a
// hostile or mistaken file could bring: anchors, aliases, tags, merge keys, duplicate keys, several
// documents, more than `max_bytes`, `max_nodes` or `max_depth`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

struct YamlLimits {
  size_t max_bytes = 256 * 1024;
  size_t max_nodes = 20'000;
  size_t max_depth = 64;
};

class YamlNode {
 public:
  enum class Kind { kNull, kScalar, kList, kMap };

  // Defined below the class, where a pair of nodes is a complete type.
  YamlNode();
  YamlNode(const YamlNode&);
  YamlNode(YamlNode&&) noexcept;
  YamlNode& operator=(const YamlNode&);
  YamlNode& operator=(YamlNode&&) noexcept;
  ~YamlNode();

  Kind kind = Kind::kNull;
  std::string scalar;           // kScalar: text as written
  std::vector<YamlNode> items;  // kList
  std::vector<std::pair<YamlNode, YamlNode>>
      entries;                              // kMap, in file order; keys are scalars, all different
  std::shared_ptr<const std::string> file;  // name for messages
  int line = 0, column = 0;                 // counted from 1

  bool is_map() const { return kind == Kind::kMap; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  const YamlNode* Find(absl::string_view key) const;  // value of a map's key, or nullptr
  std::string Where() const;  // "file:line:column"; only the file when line is 0
  absl::Status Error(
      absl::string_view message) const;  // InvalidArgument "file:line:column: message"
  absl::string_view KindName() const;    // "a map", "a list", "a value", "nothing"
  std::string Found() const;             // the same for messages: a value as "'text'"
};

inline YamlNode::YamlNode() = default;
inline YamlNode::YamlNode(const YamlNode&) = default;
inline YamlNode::YamlNode(YamlNode&&) noexcept = default;
inline YamlNode& YamlNode::operator=(const YamlNode&) = default;
inline YamlNode& YamlNode::operator=(YamlNode&&) noexcept = default;
inline YamlNode::~YamlNode() = default;

absl::StatusOr<YamlNode> ParseYaml(absl::string_view text, absl::string_view file_name,
                                   const YamlLimits& limits = {});
// `text_read`, if given, receives the file's text.
absl::StatusOr<YamlNode> ReadYamlFile(const std::string& path, const YamlLimits& limits = {},
                                      std::string* text_read = nullptr);

// A word from outside as it may stand in a message: control characters escaped, cut after 80 bytes.
std::string Printable(absl::string_view word);

// For a wrong name: ", did you mean 'NEAREST'?", or nothing when no known one is near.
std::string DidYouMean(absl::string_view wrong, const std::vector<std::string>& known);

// "did you mean 'x'?" for a wrong name: ", did you mean 'NEAREST'? Known: A, B, C" (nearest left
// out when nothing is near).
std::string Suggest(absl::string_view wrong, const std::vector<std::string>& known);

}  // namespace feedwater::server
