#include "server/base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/escape.h"
#include "server/base/status.h"
#include "server/base/yaml_trouble.h"

namespace feedwater::server {
namespace {

// Leaves yaml-cpp's parser early. Never crosses ParseYaml.
struct Refusal {
  absl::Status status;
};

bool IsNullWord(absl::string_view word) {
  return word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL";
}

// Builds the tree from yaml-cpp's events and refuses by throwing Refusal. Recursion of the parser
// and depth of the tree are bounded here, because yaml-cpp announces a collection before it goes
// into it.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view text, std::shared_ptr<const std::string> file,
              const YamlLimits& limits)
      : text_(text), file_(std::move(file)), limits_(limits) {}

  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      Refuse(mark,
             "a second document is not allowed: keep one, and remove the '---' or '...' line");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node = NewNode(mark, "?", anchor);
    // An empty value is reported where the parser noticed it, which may be lines below. Its key's
    // place is what people want.
    const bool is_written = InText(mark) && absl::StrContains("~nN", text_.substr(mark.pos, 1));
    if (!is_written && !open_.empty() && open_.back().key != nullptr) {
      node.line = open_.back().key->line;
      node.column = open_.back().key->column;
    }
    Add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Refuse(mark, kNoAliases); }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { RefuseAnchor(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = NewNode(mark, tag, anchor);
    const bool is_plain = tag == "?" || tag.empty();
    if (is_plain && IsAtKey() && value == "<<") Refuse(mark, kNoMergeKeys);
    if (!is_plain && InText(mark)) NoteQuotes(mark);
    if (!is_plain || !IsNullWord(value)) {
      node.kind = YamlNode::Kind::kScalar;
      node.scalar = value;
    }
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    Open(mark, tag, anchor, YamlNode::Kind::kList, style);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap, style);
  }
  void OnMapEnd() override { Close(); }

  // What is wrong where the parser gave up.
  absl::Status Explain(const YAML::Exception& error) const {
    YamlTrouble trouble = trouble_;
    trouble.text = text_;
    trouble.reason = error.msg;
    trouble.at = PlaceOf(error.mark);
    for (const OpenCollection& open : open_) {
      if (open.bracket == '\0') continue;
      trouble.bracket = {open.node.line, open.node.column};
      trouble.bracket_mark = open.bracket;
    }
    const YamlDiagnosis diagnosis = server::Explain(trouble);
    return NodeAt(diagnosis.at).Error(diagnosis.message);
  }

 private:
  struct OpenCollection {
    YamlNode node;
    char bracket = '\0';                          // '{' or '[' where it is written with one
    std::unique_ptr<YamlNode> key;                // of a map: read, and waiting for its value
    absl::flat_hash_map<std::string, int> lines;  // of a map's keys
  };

  // yaml-cpp counts from 0.
  static YamlPlace PlaceOf(const YAML::Mark& mark) {
    return {std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
  }
  YamlNode NodeAt(YamlPlace place) const {
    YamlNode node;
    node.file = file_;
    node.line = place.line;
    node.column = place.column;
    return node;
  }

  [[noreturn]] void Refuse(const YAML::Mark& mark, absl::string_view message) const {
    throw Refusal{NodeAt(PlaceOf(mark)).Error(message)};
  }
  [[noreturn]] void RefuseAnchor(const YAML::Mark& mark) const { Refuse(mark, kNoAnchors); }

  bool InText(const YAML::Mark& mark) const {
    return mark.pos >= 0 && static_cast<size_t>(mark.pos) < text_.size();
  }
  bool IsAtKey() const {
    return !open_.empty() && open_.back().node.is_map() && open_.back().key == nullptr;
  }

  // Where a quoted text ends. yaml-cpp takes the end of the file for a quote that is missing.
  void NoteQuotes(const YAML::Mark& mark) {
    const absl::string_view rest = text_.substr(static_cast<size_t>(mark.pos));
    const char quote = rest[0];
    if (quote != '\'' && quote != '"') return;
    int line = PlaceOf(mark).line;
    for (size_t i = 1; i < rest.size(); ++i) {
      line += rest[i] == '\n';
      if (quote == '"' && rest[i] == '\\') {
        ++i;
        line += i < rest.size() && rest[i] == '\n';
      } else if (rest[i] == quote) {
        if (quote == '"' || i + 1 == rest.size() || rest[i + 1] != quote) {
          if (line == PlaceOf(mark).line) return;
          trouble_.quote = PlaceOf(mark);
          trouble_.quote_mark = quote;
          trouble_.quote_end_line = line;
          return;
        }
        ++i;  // '' within single quotes
      }
    }
    Refuse(mark, absl::StrCat("the closing ", absl::string_view(&quote, 1),
                              " of this text is missing: add it where the text ends"));
  }

  // yaml-cpp gives "?" to plain and "!" to quoted scalars without a tag; the written tag '!' can
  // only be told by looking.
  YamlNode NewNode(const YAML::Mark& mark, absl::string_view tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) RefuseAnchor(mark);
    const bool is_written_tag = InText(mark) && text_[static_cast<size_t>(mark.pos)] == '!';
    if (is_written_tag || (!tag.empty() && tag != "?" && tag != "!")) {
      Refuse(mark, kNoTags);
    }
    if (++nodes_ > limits_.max_nodes) {
      Refuse(mark, absl::StrCat("more than ", limits_.max_nodes, " values in one file"));
    }
    return NodeAt(PlaceOf(mark));
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind, YAML::EmitterStyle::value style) {
    YamlNode node = NewNode(mark, tag, anchor);
    if (IsAtKey()) Refuse(mark, "a key must be a plain word, not a map or a list");
    if (open_.size() >= limits_.max_depth) {
      Refuse(mark, absl::StrCat("nested more than ", limits_.max_depth, " levels deep"));
    }
    node.kind = kind;
    // A map of one pair within [] may stand without brackets of its own.
    const char first = InText(mark) ? text_[static_cast<size_t>(mark.pos)] : '\0';
    const bool has_bracket =
        style == YAML::EmitterStyle::Flow && first == (kind == YamlNode::Kind::kMap ? '{' : '[');
    open_.push_back({std::move(node), has_bracket ? first : '\0', nullptr, {}});
  }

  void Close() {
    if (open_.empty())
      throw Refusal{absl::InternalError("the YAML parser closed what it had not opened")};
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Add(std::move(node));
  }

  void Add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenCollection& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.key != nullptr) {
      parent.node.entries.emplace_back(std::move(*parent.key), std::move(node));
      parent.key.reset();
    } else {
      if (!node.is_scalar())
        throw Refusal{node.Error(
            "a key must be a plain word, not nothing: write it, or remove what is here")};
      const auto [first, is_new] = parent.lines.emplace(node.scalar, node.line);
      if (!is_new) {
        throw Refusal{node.Error(absl::StrCat("the key '", Printable(node.scalar),
                                              "' appears twice, first in line ", first->second,
                                              ": remove one of the two"))};
      }
      parent.key = std::make_unique<YamlNode>(std::move(node));
    }
  }

  const absl::string_view text_;
  const std::shared_ptr<const std::string> file_;
  const YamlLimits limits_;
  YamlNode root_;
  std::vector<OpenCollection> open_;
  YamlTrouble trouble_;  // what is known so far, should something be wrong later
  size_t nodes_ = 0;
  int documents_ = 0;
};

// Only printable UTF-8: yaml-cpp takes the byte 4 for the end of the file and guesses other
// encodings.
absl::Status CheckCharacters(absl::string_view text, YamlNode place) {
  place.line = place.column = 1;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0) return place.Error("this is not UTF-8 text");
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f) {
      return place.Error(absl::StrCat("the control character \\x", absl::Hex(c, absl::kZeroPad2),
                                      " is not allowed"));
    }
    if (c == '\n') {
      ++place.line;
      place.column = 1;
    } else {
      ++place.column;
    }
    i += length;
  }
  return absl::OkStatus();
}

// Damerau's edit distance (insert, delete, change, swap neighbours), letters compared without case.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  const auto same = [](char x, char y) { return absl::ascii_tolower(x) == absl::ascii_tolower(y); };
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

// The known word that is near enough to be meant; null when none is.
const std::string* Nearest(absl::string_view wrong, const std::vector<std::string>& known) {
  constexpr size_t kMaxCompared = 64;  // longer words are not misspelt names
  if (wrong.empty() || wrong.size() > kMaxCompared) return nullptr;
  const std::string* nearest = nullptr;
  size_t nearest_distance =
      wrong.size() <= 3 ? 2 : std::max<size_t>(2, wrong.size() / 3) + 1;  // first one too far
  for (const std::string& name : known) {
    if (name.size() > kMaxCompared) continue;
    const size_t distance = EditDistance(wrong, name);
    if (distance < nearest_distance && distance < name.size()) {
      nearest = &name;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace

const YamlNode* YamlNode::Find(absl::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.scalar == key) return &value;
  }
  return nullptr;
}

std::string YamlNode::Where() const {
  const absl::string_view name =
      file == nullptr ? absl::string_view("<text>") : absl::string_view(*file);
  if (line == 0) return std::string(name);  // not from a file: a value of the command line
  return absl::StrCat(name, ":", line, ":", column);
}

absl::Status YamlNode::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(Where(), ": ", message));
}

std::string YamlNode::Found() const {
  return is_scalar() ? absl::StrCat("'", Printable(scalar), "'") : std::string(KindName());
}

absl::string_view YamlNode::KindName() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return "a value";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "nothing";
}

absl::StatusOr<YamlNode> ParseYaml(absl::string_view text, absl::string_view file_name,
                                   const YamlLimits& limits) {
  YamlNode start;
  start.file = std::make_shared<const std::string>(file_name);
  start.line = start.column = 1;
  if (text.size() > limits.max_bytes) {
    return start.Error(absl::StrCat("the file has ", text.size(), " bytes, more than the limit of ",
                                    limits.max_bytes));
  }
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // UTF-8 byte order mark
  FW_RETURN_IF_ERROR(CheckCharacters(text, start));

  TreeBuilder builder(text, start.file, limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return start;  // empty, or comments only
    parser.HandleNextDocument(builder);  // refused by the builder if there is one
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const YAML::Exception& e) {
    return builder.Explain(e);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory while reading ", file_name));
  } catch (const std::exception& e) {
    return start.Error(absl::StrCat("the file cannot be parsed: ", e.what()));
  }
  YamlNode root = builder.TakeRoot();
  if (root.file == nullptr) return start;
  return root;
}

absl::StatusOr<YamlNode> ReadYamlFile(const std::string& path, const YamlLimits& limits,
                                      std::string* text_read) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rbe"), &fclose);
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  // One byte more than allowed shows that the file is too large, without reading all of it.
  std::string text(limits.max_bytes + 1, '\0');
  const size_t size = fread(text.data(), 1, text.size(), file.get());
  if (ferror(file.get())) return ErrnoStatus(errno, absl::StrCat("cannot read ", path));
  if (size > limits.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":1:1: the file is larger than the limit of ", limits.max_bytes, " bytes"));
  }
  text.resize(size);
  if (text_read != nullptr) *text_read = text;
  return ParseYaml(text, path, limits);
}

std::string Printable(absl::string_view word) {
  constexpr size_t kMaxBytes = 80;
  if (word.size() <= kMaxBytes) return Escaped(word);
  size_t end = 0;  // behind the character in which the limit lies
  while (end < kMaxBytes) end += std::max<size_t>(1, Utf8Length(word.substr(end)));
  return Escaped(word.substr(0, end)) + (end < word.size() ? "..." : "");
}

std::string DidYouMean(absl::string_view wrong, const std::vector<std::string>& known) {
  const std::string* nearest = Nearest(wrong, known);
  return nearest == nullptr ? "" : absl::StrCat(", did you mean '", *nearest, "'?");
}

std::string Suggest(absl::string_view wrong, const std::vector<std::string>& known) {
  constexpr size_t kMaxListBytes = 600;  // about ten lines of a terminal
  std::string text = DidYouMean(wrong, known);
  if (known.empty()) return text;
  absl::StrAppend(&text, text.empty() ? ". Known: " : " Known: ");
  size_t listed = 0;
  for (const std::string& name : known) {
    if (listed > 0 && text.size() + name.size() > kMaxListBytes) break;
    absl::StrAppend(&text, listed == 0 ? "" : ", ", name);
    ++listed;
  }
  if (listed < known.size()) absl::StrAppend(&text, ", and ", known.size() - listed, " more");
  return text;
}

}  // namespace feedwater::server
