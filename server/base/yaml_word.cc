#include "server/base/yaml_word.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/escape.h"

namespace feedwater::server {

std::string YamlWord(absl::string_view word) {
  // What readers of YAML 1.1 or 1.2 take for something else than a text. (By YAML 1.1 y and n are
  // truth values, too, for which nobody takes them: they are names of fields.)
  static constexpr absl::string_view kOtherWords[] = {"null", "true", "false", "yes",
                                                      "no",   "on",   "off"};
  const auto is_same = [&](absl::string_view other) { return absl::EqualsIgnoreCase(word, other); };
  const auto may_stand_plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("_-./", absl::string_view(&c, 1));
  };
  if (!word.empty() && absl::ascii_isalpha(static_cast<unsigned char>(word[0])) &&
      absl::c_all_of(word, may_stand_plain) && absl::c_none_of(kOtherWords, is_same)) {
    return std::string(word);
  }
  std::string text = "\"";
  while (!word.empty()) {
    const size_t length = std::max<size_t>(1, Utf8Length(word));
    const absl::string_view character = word.substr(0, length);
    word.remove_prefix(length);
    const char c = character[0];
    if (c == '\n' || c == '\r' || c == '\t') {
      absl::StrAppend(&text, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (c == '"' || c == '\\') {
      absl::StrAppend(&text, "\\", character);
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
    } else if (length == 2 && c == '\xc2' && static_cast<unsigned char>(character[1]) < 0xa0) {
      absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(character[1]));  // C1
    } else if (character == "\xe2\x80\xa8" || character == "\xe2\x80\xa9") {  // line ends
      absl::StrAppend(&text, character == "\xe2\x80\xa8" ? "\\u2028" : "\\u2029");
    } else if (character == "\xef\xbb\xbf") {
      absl::StrAppend(&text, "\\ufeff");
    } else if (character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf") {  // no characters
      absl::StrAppend(&text, character == "\xef\xbf\xbe" ? "\\ufffe" : "\\uffff");
    } else {
      absl::StrAppend(&text, character);
    }
  }
  return absl::StrCat(text, "\"");
}

}  // namespace feedwater::server
