// Text that is no YAML, explained to the person who wrote it. yaml-cpp's own words are about its
// parser ("end of map not found") and name the place where it noticed; the text around that place
// tells, as a rule, where something is to be changed, and what.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace feedwater::server {

// Of the whole of YAML, Feedwater takes what can be read at a glance.
inline constexpr absl::string_view kNoAnchors =
    "anchors ('&name') are not allowed: write the value out wherever it is used";
inline constexpr absl::string_view kNoAliases =
    "aliases ('*name') are not allowed: write the value out, or put a text with '*' in quotes";
inline constexpr absl::string_view kNoTags = "tags ('!name') are not allowed: remove it";
inline constexpr absl::string_view kNoMergeKeys =
    "merge keys ('<<') are not allowed: write the keys out";

// Counted from 1; a line of 0 is no place.
struct YamlPlace {
  int line = 0, column = 0;
};

// What is known where the parser gave up.
struct YamlTrouble {
  absl::string_view text;    // the whole file
  absl::string_view reason;  // yaml-cpp's words
  YamlPlace at;
  YamlPlace bracket;       // of the innermost '{' or '[' that is still open
  YamlPlace quote;         // of the last quoted text that runs over several lines
  int quote_end_line = 0;  // and where that ends
  char bracket_mark = '{', quote_mark = '"';  // which of them
};

struct YamlDiagnosis {
  YamlPlace at;
  std::string message;  // what is wrong and the cure, in one sentence
};
YamlDiagnosis Explain(const YamlTrouble& trouble);

}  // namespace feedwater::server
