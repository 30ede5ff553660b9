#include "server/base/yaml_trouble.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace feedwater::server {
namespace {

size_t Column(YamlPlace place) { return static_cast<size_t>(place.column); }
char ClosingOf(char bracket) { return bracket == '[' ? ']' : '}'; }
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
  return YamlDiagnosis{
      trouble.quote, absl::StrCat("the closing ", absl::string_view(&trouble.quote_mark, 1),
                                  " of this text is missing in its line (the next one is in line ",
                                  trouble.quote_end_line, "): add it where the text ends")};
}

// A text that begins, here or one before, with a character that YAML keeps for itself.
std::optional<YamlDiagnosis> FindSign(const Lines& lines, YamlPlace at) {
  constexpr absl::string_view kOfAWord = "&*!";
  const char before = lines.CharAt({at.line, at.column - 1});
  const bool is_before = before != '\0' && absl::StrContains(kOfAWord, before) &&
                         lines.CharAt({at.line, at.column - 2}) == ' ';
  const char sign = is_before ? before : lines.CharAt(at);
  const auto here = [at](absl::string_view message) {
    return YamlDiagnosis{at, std::string(message)};
  };
  switch (sign) {
    case '&':
      return here(kNoAnchors);
    case '*':
      return here(kNoAliases);
    case '!':
      return here(kNoTags);
    case '%':
      if (at.column == 1) return here("directives ('%...') are not needed: remove this line");
      [[fallthrough]];
    case '@':
    case '`':
      return here(absl::StrCat("a text cannot begin with ", Quoted(sign), ": put it in quotes"));
    default:
      return std::nullopt;
  }
}

YamlDiagnosis ExplainBracket(const Lines& lines, const YamlTrouble& trouble) {
  const char open = trouble.bracket_mark;
  const char close = ClosingOf(open);
  const char sign = lines.CharAt(trouble.at);
  const char before = lines.CharAt({trouble.at.line, trouble.at.column - 1});
  if ((sign == '{' || sign == '[') && (absl::ascii_isalnum(before) || before == '_')) {
    return {trouble.at,
            absl::StrCat("a text with ", Quoted(sign), " in it stands in quotes within ",
                         Quoted(open), " and ", Quoted(close), ", such as \"view_{0..9}\"")};
  }
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

// Behind a '\' in double quotes that begins no escape.
std::optional<YamlDiagnosis> FindEscape(const Lines& lines, YamlPlace at) {
  const YamlPlace backslash = {at.line, at.column - 2};
  if (lines.CharAt(backslash) != '\\') return std::nullopt;
  if (!absl::StrContains(lines.At(at.line).substr(0, Column(backslash)), '"')) return std::nullopt;
  return YamlDiagnosis{backslash,
                       "within double quotes a '\\' begins an escape, and this is none: write "
                       "'\\\\', or put the text in single quotes"};
}

// A line below a key that has its value beside it.
std::optional<YamlDiagnosis> FindDeepIndent(const Lines& lines, const YamlTrouble& trouble) {
  const int above = lines.Above(trouble.at.line);
  const size_t indent = lines.Indent(trouble.at.line);
  if (above == 0 || indent <= lines.Indent(above) || !HasKey(lines.At(above))) return std::nullopt;
  return YamlDiagnosis{
      {trouble.at.line, static_cast<int>(indent) + 1},
      absl::StrCat(
          "the key of line ", above,
          " already has a value, so no other can follow below it: indent this line as that one")};
}

// "- decode   {in: data}": behind the name of an entry, a map without the ':' before it.
std::optional<YamlDiagnosis> FindMapWithoutColon(const Lines& lines, const YamlTrouble& trouble) {
  const absl::string_view line = lines.At(trouble.at.line);
  const size_t begin = lines.Indent(trouble.at.line);
  if (!absl::StartsWith(line.substr(begin), "- ")) return std::nullopt;
  const size_t name = line.find_first_not_of(' ', begin + 1);
  if (name == absl::string_view::npos) return std::nullopt;
  size_t end = name;
  while (end < line.size() && (absl::ascii_isalnum(line[end]) || line[end] == '_')) ++end;
  const size_t open = line.find_first_not_of(' ', end);
  if (end == name || open == absl::string_view::npos || open == end || line[open] != '{' ||
      open >= Column(trouble.at))
    return std::nullopt;
  const absl::string_view word = line.substr(name, end - name);
  return YamlDiagnosis{{trouble.at.line, static_cast<int>(end) + 1},
                       absl::StrCat("':' is missing behind '", word, "': write '", word, ": {'")};
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
            "or 'key:' with the value below"};
  }
  if (auto indent = FindDeepIndent(lines, trouble)) return *indent;
  return {trouble.at, "a ':' is not allowed here: put a text that holds one in quotes"};
}

}  // namespace

YamlDiagnosis Explain(const YamlTrouble& trouble) {
  const Lines lines(trouble.text);
  if (auto tab = FindTab(lines, trouble)) return *tab;
  if (auto quote = FindOpenQuote(trouble)) return *quote;
  if (auto escape = FindEscape(lines, trouble.at)) return *escape;
  if (auto sign = FindSign(lines, trouble.at)) return *sign;

  if (auto colon = FindMapWithoutColon(lines, trouble)) return *colon;

  const char found = lines.CharAt(trouble.at);
  if (found == ']' || found == '}') {
    return {trouble.at, absl::StrCat("this ", Quoted(found),
                                     " closes nothing: remove it, or add the bracket that is "
                                     "missing before it")};
  }
  if (trouble.bracket.line != 0) return ExplainBracket(lines, trouble);
  if (found == ':') return ExplainColon(lines, trouble);
  if (auto indent = FindDeepIndent(lines, trouble)) return *indent;
  if (lines.Above(trouble.at.line) > 0 && lines.Indent(trouble.at.line) + 1 == Column(trouble.at)) {
    return {trouble.at,
            "this does not continue what is above: indent it exactly as the keys, or the '- ' "
            "entries, that it belongs to"};
  }
  if (found == '-') {
    return {trouble.at,
            "a '- ' entry is not allowed here: begin it on a line of its own, or write the list as "
            "[a, b]"};
  }
  return {trouble.at, absl::StrCat("this is no YAML: ", trouble.reason)};
}

}  // namespace feedwater::server
