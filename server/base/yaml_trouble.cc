#include "server/base/yaml_trouble.h"

#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace feedwater::server {
namespace {

namespace ErrorMsg = YAML::ErrorMsg;

std::string Quoted(char c) { return absl::StrCat("'", absl::string_view(&c, 1), "'"); }

// The lines of a file, numbered from 1.
class Lines {
 public:
  explicit Lines(absl::string_view text) : lines_(absl::StrSplit(text, '\n')) {
    for (absl::string_view& line : lines_) absl::ConsumeSuffix(&line, "\r");
  }

  absl::string_view At(int line) const {
    return line < 1 || static_cast<size_t>(line) > lines_.size()
               ? absl::string_view()
               : lines_[static_cast<size_t>(line) - 1];
  }
  char CharAt(YamlPlace place) const {
    const absl::string_view line = At(place.line);
    return place.column < 1 || static_cast<size_t>(place.column) > line.size()
               ? '\0'
               : line[static_cast<size_t>(place.column) - 1];
  }
  // The next line above that holds something besides a comment; 0 when there is none.
  int Above(int line) const {
    for (--line; line > 0; --line) {
      const absl::string_view rest = At(line).substr(Indent(line));
      if (!rest.empty() && rest[0] != '#') return line;
    }
    return 0;
  }
  size_t Indent(int line) const {
    const absl::string_view text = At(line);
    const size_t first = text.find_first_not_of(" \t");
    return first == absl::string_view::npos ? text.size() : first;
  }
  // Whether nothing follows this place.
  bool IsEnd(YamlPlace place) const {
    const auto is_blank = [](absl::string_view text) {
      return text.find_first_not_of(" \t") == absl::string_view::npos;
    };
    const absl::string_view line = At(place.line);
    if (!is_blank(line.substr(std::min(line.size(), static_cast<size_t>(place.column) - 1))))
      return false;
    for (auto next = static_cast<size_t>(place.line); next < lines_.size(); ++next) {
      if (!is_blank(lines_[next])) return false;
    }
    return true;
  }

 private:
  std::vector<absl::string_view> lines_;
};

// Whether a line has a key and its ':'.
bool HasKey(absl::string_view line) {
  return absl::StrContains(line, ": ") || absl::EndsWith(line, ":");
}

std::optional<YamlDiagnosis> FindTab(const Lines& lines, const YamlTrouble& trouble) {
  const absl::string_view indent =
      lines.At(trouble.at.line).substr(0, lines.Indent(trouble.at.line));
  const size_t tab = indent.find('\t');
  if (tab == absl::string_view::npos) return std::nullopt;
  return YamlDiagnosis{{trouble.at.line, static_cast<int>(tab) + 1},
                       "this line is indented with a tab, which YAML does not allow: use blanks"};
}

std::optional<YamlDiagnosis> FindOpenQuote(const YamlTrouble& trouble) {
  if (trouble.quote.line == 0 || trouble.quote_end_line != trouble.at.line) return std::nullopt;
  return YamlDiagnosis{trouble.quote,
                       absl::StrCat("the closing ", absl::string_view(&trouble.quote_mark, 1),
                                    " of this text is missing in its line (the next one stands in "
                                    "line ",
                                    trouble.quote_end_line, "): add it where the text ends")};
}

YamlDiagnosis ExplainBracket(const Lines& lines, const YamlTrouble& trouble) {
  const char open = trouble.bracket_mark;
  const char close = open == '[' ? ']' : '}';
  if (trouble.bracket.line == 0)
    return {trouble.at, "a ',' or a closing bracket is missing before here: add it"};
  if (trouble.bracket.line == trouble.at.line) {
    return {trouble.at,
            absl::StrCat("a ',' is missing before here, or the ", Quoted(close), " of the ",
                         Quoted(open), " in column ", trouble.bracket.column, ": add it")};
  }
  if (lines.IsEnd(trouble.at)) {
    return {trouble.bracket,
            absl::StrCat("this ", Quoted(open), " is never closed: add its ", Quoted(close))};
  }
  return {trouble.bracket, absl::StrCat("this ", Quoted(open), " is not closed: a ", Quoted(close),
                                        " or a ',' is missing before line ", trouble.at.line,
                                        ", column ", trouble.at.column)};
}

// A line below a key that has its value beside it.
std::optional<YamlDiagnosis> FindDeepIndent(const Lines& lines, const YamlTrouble& trouble) {
  const int above = lines.Above(trouble.at.line);
  const size_t indent = lines.Indent(trouble.at.line);
  if (above == 0 || indent <= lines.Indent(above) || !HasKey(lines.At(above))) return std::nullopt;
  return YamlDiagnosis{{trouble.at.line, static_cast<int>(indent) + 1},
                       absl::StrCat("the key of line ", above,
                                    " has a value already, so that no further one can stand below "
                                    "it: indent this line as that one")};
}

// A ':' where no key can stand.
YamlDiagnosis ExplainColon(const Lines& lines, const YamlTrouble& trouble) {
  const absl::string_view line = lines.At(trouble.at.line);
  const auto before = static_cast<size_t>(trouble.at.column) - 1;
  if (before <= line.size() && absl::StrContains(line.substr(0, before), ": ")) {
    return {trouble.at,
            "a second ': ' in one value: put a text in quotes, or write a map as {key: value}"};
  }
  const int above = lines.Above(trouble.at.line);
  if (above > 0 && !HasKey(lines.At(above))) {
    return {{above, static_cast<int>(lines.Indent(above)) + 1},
            "this line has no ':' after its key: write 'key: value' with a blank after the colon, "
            "or 'key:' where the value stands below"};
  }
  if (auto indent = FindDeepIndent(lines, trouble)) return *indent;
  return {trouble.at, "a ':' cannot stand here: put a text that holds one in quotes"};
}

}  // namespace

YamlDiagnosis Explain(const YamlTrouble& trouble) {
  const Lines lines(trouble.text);
  const absl::string_view reason = trouble.reason;
  if (auto tab = FindTab(lines, trouble)) return *tab;
  if (auto quote = FindOpenQuote(trouble)) return *quote;
  if (reason == ErrorMsg::END_OF_MAP_FLOW || reason == ErrorMsg::END_OF_SEQ_FLOW)
    return ExplainBracket(lines, trouble);
  if (reason == ErrorMsg::MAP_VALUE) return ExplainColon(lines, trouble);

  const char found = lines.CharAt(trouble.at);
  const auto here = [&](std::string message) {
    return YamlDiagnosis{trouble.at, std::move(message)};
  };
  if (reason == ErrorMsg::TAB_IN_INDENTATION)
    return here("a tab stands where YAML wants blanks: replace it");
  if (reason == ErrorMsg::END_OF_MAP || reason == ErrorMsg::END_OF_SEQ) {
    if (auto indent = FindDeepIndent(lines, trouble)) return *indent;
    return here(
        "this does not continue what stands above: indent it exactly as the keys, or the '- ' "
        "entries, that it belongs to");
  }
  if (reason == ErrorMsg::FLOW_END) {
    return here(absl::StrCat("this ", Quoted(found),
                             " closes nothing: remove it, or add the bracket that is missing "
                             "before it"));
  }
  if (reason == ErrorMsg::BLOCK_ENTRY) {
    return here(
        "a '- ' entry cannot stand here: begin it on a line of its own, or write the list as [a, "
        "b]");
  }
  if (reason == ErrorMsg::UNKNOWN_TOKEN || reason == ErrorMsg::MAP_KEY)
    return here(absl::StrCat("a text cannot begin with ", Quoted(found), ": put it in quotes"));
  if (reason == ErrorMsg::UNKNOWN_ANCHOR || reason == ErrorMsg::ALIAS_NOT_FOUND ||
      reason == ErrorMsg::CHAR_IN_ALIAS) {
    return here(std::string(kNoAliases));
  }
  if (reason == ErrorMsg::ANCHOR_NOT_FOUND || reason == ErrorMsg::CHAR_IN_ANCHOR ||
      reason == ErrorMsg::MULTIPLE_ANCHORS) {
    return here(std::string(kNoAnchors));
  }
  if (reason == ErrorMsg::MULTIPLE_TAGS || reason == ErrorMsg::CHAR_IN_TAG_HANDLE ||
      reason == ErrorMsg::TAG_WITH_NO_SUFFIX || reason == ErrorMsg::END_OF_VERBATIM_TAG) {
    return here(std::string(kNoTags));
  }
  if (absl::StartsWith(reason, ErrorMsg::INVALID_ESCAPE)) {
    const absl::string_view letter = absl::StripPrefix(reason, ErrorMsg::INVALID_ESCAPE);
    return here(absl::StrCat("'\\", letter, "' is no escape in a text with \": write '\\\\", letter,
                             "', or put the text in single quotes"));
  }
  if (reason == ErrorMsg::EOF_IN_SCALAR || reason == ErrorMsg::DOC_IN_SCALAR)
    return here("a quoted text runs up to here: add its closing quote");
  if (found == '%') return here("directives ('%...') are not needed: remove this line");
  return here(absl::StrCat("this is no YAML: ", reason));
}

}  // namespace feedwater::server
