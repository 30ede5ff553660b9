#include "server/base/schema.h"

#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/base/status_message.h"
#include "server/base/units.h"

namespace feedwater::server {
namespace {

absl::Status WrongType(const YamlNode& node, absl::string_view expected) {
  return node.Error(absl::StrCat("must be ", expected, ", not ", node.Found()));
}

// Digits with an optional sign: no blanks, point, exponent, hex or octal, whatever absl allows
// besides.
bool LooksLikeInteger(absl::string_view text) {
  if (absl::StartsWith(text, "-") || absl::StartsWith(text, "+")) text.remove_prefix(1);
  if (text.empty()) return false;
  for (char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

bool LooksLikeNumber(absl::string_view text) {
  bool has_digit = false;
  for (char c : text) {
    const bool is_digit = absl::ascii_isdigit(static_cast<unsigned char>(c));
    if (!is_digit && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E') return false;
    has_digit |= is_digit;
  }
  return has_digit;
}

// The shortest text that reads back as the same number; always with a point or an exponent.
std::string NumberText(double value) {
  char buffer[64];
  const double size = std::fabs(value);
  const bool is_fixed = size == 0 || (size >= 1e-5 && size < 1e16);
  const auto written =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    is_fixed ? std::chars_format::fixed : std::chars_format::scientific);
  const absl::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  const bool is_whole = is_fixed && text.find('.') == absl::string_view::npos;
  return absl::StrCat(text, is_whole ? ".0" : "");
}

std::string ShortNumber(double value) {  // for ranges: 1, not 1.0
  const std::string text = NumberText(value);
  return absl::EndsWith(text, ".0") ? text.substr(0, text.size() - 2) : text;
}

// A word as flow text: plain where that reads back as the same string, else in double quotes, with
// the escapes of C. Digests are made of it, so it stays as it is; what is written into a file for
// others to read is YamlWord.
std::string WordText(absl::string_view word) {
  bool is_plain = !word.empty() && absl::ascii_isalpha(static_cast<unsigned char>(word[0])) &&
                  word != "null" && word != "Null" && word != "NULL" && word != "true" &&
                  word != "false";
  for (char c : word) {
    is_plain = is_plain && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                            absl::StrContains("_-./", absl::string_view(&c, 1)));
  }
  return is_plain ? std::string(word) : absl::StrCat("\"", absl::Utf8SafeCHexEscape(word), "\"");
}

// T says how the bounds are written.
template <typename T>
absl::Status CheckNumber(double value, absl::string_view text, const Constraint& rule) {
  const bool is_low = rule.low.has_value() && value < *rule.low;
  const bool is_high = rule.high.has_value() && value > *rule.high;
  if (!is_low && !is_high) return absl::OkStatus();
  std::string range;
  if (rule.low.has_value() && rule.high.has_value()) {
    range = absl::StrCat("between ", BoundText<T>(*rule.low), " and ", BoundText<T>(*rule.high));
  } else if (rule.low.has_value()) {
    range = absl::StrCat("at least ", BoundText<T>(*rule.low));
  } else {
    range = absl::StrCat("at most ", BoundText<T>(*rule.high));
  }
  return absl::InvalidArgumentError(absl::StrCat("must be ", range, ", not ", text));
}

// "a", "a or b", "a, b or c".
std::string WordList(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return text;
}

absl::Status CheckWord(absl::string_view value, const Constraint& rule) {
  if (rule.choices.empty()) return absl::OkStatus();
  for (const std::string& choice : rule.choices) {
    if (choice == value) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("must be ", WordList(rule.choices), ", not '",
                                                 Printable(value), "'",
                                                 DidYouMean(value, rule.choices)));
}

// A value as it may stand in a map on one line.
std::string ValueText(const YamlNode& node) {
  if (!node.is_list()) return Printable(node.scalar);
  return absl::StrCat("[",
                      absl::StrJoin(node.items, ", ",
                                    [](std::string* out, const YamlNode& item) {
                                      absl::StrAppend(
                                          out, item.is_scalar() ? Printable(item.scalar) : "...");
                                    }),
                      "]");
}

template <typename T>
absl::Status ReadList(const YamlNode& node, absl::string_view expected, std::vector<T>* values) {
  if (node.is_scalar())
    return WrongType(node, absl::StrCat(expected, " such as [", Printable(node.scalar), "]"));
  if (!node.is_list()) return WrongType(node, expected);
  std::vector<T> read;
  read.reserve(node.items.size());
  for (const YamlNode& item : node.items) {
    T value{};
    FW_RETURN_IF_ERROR(ParamType<T>::Read(item, &value));
    read.push_back(std::move(value));
  }
  *values = std::move(read);
  return absl::OkStatus();
}

template <typename T>
std::string ListText(const std::vector<T>& values) {
  return absl::StrCat("[",
                      absl::StrJoin(values, ", ",
                                    [](std::string* out, const T& value) {
                                      absl::StrAppend(out, ParamType<T>::Text(value));
                                    }),
                      "]");
}

template <typename T>
absl::Status CheckList(const std::vector<T>& values, const Constraint& rule) {
  for (size_t i = 0; i < values.size(); ++i) {
    const absl::Status checked = ParamType<T>::Check(values[i], rule);
    if (!checked.ok())
      return absl::InvalidArgumentError(absl::StrCat("item ", i + 1, " ", checked.message()));
  }
  return absl::OkStatus();
}

// "train.yaml:4:7"
bool EndsWithPlace(absl::string_view text) {
  for (int part = 0; part < 2; ++part) {
    const size_t all = text.size();
    while (!text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text.back())))
      text.remove_suffix(1);
    if (text.size() == all || !absl::ConsumeSuffix(&text, ":")) return false;
  }
  return true;
}

}  // namespace

std::string NumberBoundText(double bound) { return ShortNumber(bound); }

const char* const ParamType<bool>::kName = "true or false";
const char* const ParamType<bool>::kJson = R"({"type":"boolean"})";
absl::Status ParamType<bool>::Read(const YamlNode& node, bool* value) {
  if (node.is_scalar()) {
    for (absl::string_view yes : {"true", "True", "TRUE"}) {
      if (node.scalar == yes) return *value = true, absl::OkStatus();
    }
    for (absl::string_view no : {"false", "False", "FALSE"}) {
      if (node.scalar == no) return *value = false, absl::OkStatus();
    }
  }
  return WrongType(node, "true or false");
}
std::string ParamType<bool>::Text(const bool& value) { return value ? "true" : "false"; }
absl::Status ParamType<bool>::Check(const bool&, const Constraint&) { return absl::OkStatus(); }

const char* const ParamType<int64_t>::kName = "integer";
const char* const ParamType<int64_t>::kJson = R"({"type":"integer"})";
absl::Status ParamType<int64_t>::Read(const YamlNode& node, int64_t* value) {
  if (!node.is_scalar() || !LooksLikeInteger(node.scalar)) return WrongType(node, "an integer");
  int64_t read;
  if (!absl::SimpleAtoi(node.scalar, &read)) return WrongType(node, "an integer of 64 bits");
  *value = read;
  return absl::OkStatus();
}
std::string ParamType<int64_t>::Text(const int64_t& value) { return absl::StrCat(value); }
absl::Status ParamType<int64_t>::Check(const int64_t& value, const Constraint& rule) {
  return CheckNumber<int64_t>(static_cast<double>(value), absl::StrCat(value), rule);
}

const char* const ParamType<uint64_t>::kName = "integer from 0";
const char* const ParamType<uint64_t>::kJson = R"({"type":"integer","minimum":0})";
absl::Status ParamType<uint64_t>::Read(const YamlNode& node, uint64_t* value) {
  if (!node.is_scalar() || !LooksLikeInteger(node.scalar))
    return WrongType(node, "an integer from 0");
  uint64_t read;
  if (absl::StartsWith(node.scalar, "-") || !absl::SimpleAtoi(node.scalar, &read)) {
    return WrongType(node, "an integer from 0 to 18446744073709551615");
  }
  *value = read;
  return absl::OkStatus();
}
std::string ParamType<uint64_t>::Text(const uint64_t& value) { return absl::StrCat(value); }
absl::Status ParamType<uint64_t>::Check(const uint64_t& value, const Constraint& rule) {
  return CheckNumber<uint64_t>(static_cast<double>(value), absl::StrCat(value), rule);
}

const char* const ParamType<double>::kName = "number";
const char* const ParamType<double>::kJson = R"({"type":"number"})";
absl::Status ParamType<double>::Read(const YamlNode& node, double* value) {
  double read;
  if (!node.is_scalar() || !LooksLikeNumber(node.scalar) || !absl::SimpleAtod(node.scalar, &read) ||
      !std::isfinite(read)) {
    return WrongType(node, "a finite number");
  }
  *value = read;
  return absl::OkStatus();
}
std::string ParamType<double>::Text(const double& value) { return NumberText(value); }
absl::Status ParamType<double>::Check(const double& value, const Constraint& rule) {
  return CheckNumber<double>(value, ShortNumber(value), rule);
}

const char* const ParamType<std::string>::kName = "word";
// A word may look like a number: `users: [1000]`.
#define FW_WORD_JSON R"({"type":["string","number","boolean"]})"
const char* const ParamType<std::string>::kJson = FW_WORD_JSON;
absl::Status ParamType<std::string>::Read(const YamlNode& node, std::string* value) {
  if (!node.is_scalar()) return WrongType(node, "a word");
  *value = node.scalar;
  return absl::OkStatus();
}
std::string ParamType<std::string>::Text(const std::string& value) { return WordText(value); }
absl::Status ParamType<std::string>::Check(const std::string& value, const Constraint& rule) {
  return CheckWord(value, rule);
}

const char* const ParamType<ByteCount>::kName = "size such as 512MiB";
const char* const ParamType<ByteCount>::kJson =
    R"({"type":["string","integer"],"pattern":"^[0-9]+(\\.[0-9]+)? *([KMGTP]iB|[kKMGTP]B|B)?$","minimum":0})";
absl::Status ParamType<ByteCount>::Read(const YamlNode& node, ByteCount* value) {
  if (!node.is_scalar()) return WrongType(node, "a size such as 512MiB");
  auto bytes = ParseBytes(node.scalar);
  if (!bytes.ok()) return node.Error(bytes.status().message());
  value->bytes = *bytes;
  return absl::OkStatus();
}
std::string ParamType<ByteCount>::Text(const ByteCount& value) {
  int64_t bytes = value.bytes;
  if (bytes == 0) return "0";
  absl::string_view unit;
  for (absl::string_view next : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = next;
  }
  return absl::StrCat(bytes, unit);
}
absl::Status ParamType<ByteCount>::Check(const ByteCount& value, const Constraint& rule) {
  return CheckNumber<ByteCount>(static_cast<double>(value.bytes), Text(value), rule);
}

const char* const ParamType<Seconds>::kName = "time such as 500ms";
const char* const ParamType<Seconds>::kJson =
    R"({"anyOf":[{"type":"string","pattern":"^[0-9]+(\\.[0-9]+)? *(ns|us|ms|s|min|h|d)$"},{"const":0}]})";
absl::Status ParamType<Seconds>::Read(const YamlNode& node, Seconds* value) {
  if (!node.is_scalar()) return WrongType(node, "a time such as 500ms");
  auto seconds = ParseSeconds(node.scalar);
  if (!seconds.ok()) return node.Error(seconds.status().message());
  value->seconds = *seconds;
  return absl::OkStatus();
}
std::string ParamType<Seconds>::Text(const Seconds& value) {
  const double s = value.seconds;
  if (s != 0 && s < 1) return absl::StrCat(ShortNumber(s * 1e3), "ms");
  if (s >= 3600 && std::fmod(s, 3600) == 0) return absl::StrCat(ShortNumber(s / 3600), "h");
  if (s >= 60 && std::fmod(s, 60) == 0) return absl::StrCat(ShortNumber(s / 60), "min");
  return absl::StrCat(ShortNumber(s), "s");
}
absl::Status ParamType<Seconds>::Check(const Seconds& value, const Constraint& rule) {
  return CheckNumber<Seconds>(value.seconds, Text(value), rule);
}

const char* const ParamType<std::vector<int64_t>>::kName = "list of integers";
const char* const ParamType<std::vector<int64_t>>::kJson =
    R"({"type":"array","items":{"type":"integer"}})";
absl::Status ParamType<std::vector<int64_t>>::Read(const YamlNode& node,
                                                   std::vector<int64_t>* value) {
  return ReadList(node, "a list of integers", value);
}
std::string ParamType<std::vector<int64_t>>::Text(const std::vector<int64_t>& value) {
  return ListText(value);
}
absl::Status ParamType<std::vector<int64_t>>::Check(const std::vector<int64_t>& value,
                                                    const Constraint& rule) {
  return CheckList(value, rule);
}

const char* const ParamType<std::vector<double>>::kName = "list of numbers";
const char* const ParamType<std::vector<double>>::kJson =
    R"({"type":"array","items":{"type":"number"}})";
absl::Status ParamType<std::vector<double>>::Read(const YamlNode& node,
                                                  std::vector<double>* value) {
  return ReadList(node, "a list of numbers", value);
}
std::string ParamType<std::vector<double>>::Text(const std::vector<double>& value) {
  return ListText(value);
}
absl::Status ParamType<std::vector<double>>::Check(const std::vector<double>& value,
                                                   const Constraint& rule) {
  return CheckList(value, rule);
}

const char* const ParamType<std::vector<std::string>>::kName = "list of words";
const char* const ParamType<std::vector<std::string>>::kJson =
    R"({"type":"array","items":)" FW_WORD_JSON "}";
absl::Status ParamType<std::vector<std::string>>::Read(const YamlNode& node,
                                                       std::vector<std::string>* value) {
  return ReadList(node, "a list of words", value);
}
std::string ParamType<std::vector<std::string>>::Text(const std::vector<std::string>& value) {
  return ListText(value);
}
absl::Status ParamType<std::vector<std::string>>::Check(const std::vector<std::string>& value,
                                                        const Constraint& rule) {
  return CheckList(value, rule);
}

const char* const ParamType<StringMap>::kName = "map of words";
const char* const ParamType<StringMap>::kJson =
    R"({"type":"object","additionalProperties":)" FW_WORD_JSON "}";
absl::Status ParamType<StringMap>::Read(const YamlNode& node, StringMap* value) {
  if (node.is_scalar())
    return WrongType(node,
                     absl::StrCat("a map of words such as {NAME: ", Printable(node.scalar), "}"));
  if (!node.is_map()) return WrongType(node, "a map of words");
  StringMap read;
  for (const auto& [key, item] : node.entries) {
    std::string text;
    FW_RETURN_IF_ERROR(ParamType<std::string>::Read(item, &text));
    read.emplace(key.scalar, std::move(text));
  }
  *value = std::move(read);
  return absl::OkStatus();
}
std::string ParamType<StringMap>::Text(const StringMap& value) {
  return absl::StrCat("{",
                      absl::StrJoin(value, ", ",
                                    [](std::string* out, const auto& entry) {
                                      absl::StrAppend(out, WordText(entry.first), ": ",
                                                      WordText(entry.second));
                                    }),
                      "}");
}
absl::Status ParamType<StringMap>::Check(const StringMap& value, const Constraint& rule) {
  for (const auto& [key, text] : value) {
    const absl::Status checked = CheckWord(text, rule);
    if (!checked.ok())
      return absl::InvalidArgumentError(absl::StrCat("'", Printable(key), "' ", checked.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckKeys(const YamlNode& map, const std::vector<ParamInfo>& params,
                       absl::string_view what) {
  for (const auto& [key, value] : map.entries) {
    bool is_known = false;
    for (const ParamInfo& param : params) is_known |= param.name == key.scalar;
    if (is_known) continue;
    std::vector<std::string> names;
    for (const ParamInfo& param : params) names.push_back(param.name);
    return key.Error(absl::StrCat(what, " has no parameter '", Printable(key.scalar), "'",
                                  Suggest(key.scalar, names)));
  }
  for (const ParamInfo& param : params) {
    if (param.required && map.Find(param.name) == nullptr) {
      return map.Error(
          absl::StrCat(what, " needs '", param.name, "' (", param.type, "): ", param.doc));
    }
  }
  return absl::OkStatus();
}

absl::Status NotAMap(const YamlNode& node, const std::vector<ParamInfo>& params,
                     absl::string_view what, const std::function<bool(size_t)>& fits) {
  if (params.empty()) return node.Error(absl::StrCat(what, " takes no parameters"));
  // The parameter that was meant, as far as the value tells: one of few words, one that is
  // required, any that is not a free word, which every value would fit.
  const auto rank = [&](const ParamInfo& param) {
    const bool is_free = param.choices.empty() && param.type == ParamType<std::string>::kName;
    return !param.choices.empty() ? 0 : is_free ? 3 : param.required ? 1 : 2;
  };
  const ParamInfo* meant = nullptr;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].nested.empty() || !fits(i)) continue;
    if (meant == nullptr || rank(params[i]) < rank(*meant)) meant = &params[i];
  }
  std::string value;
  if (meant != nullptr) {
    value = ValueText(node);
  } else {
    meant = &params[0];
    value = meant->default_text.empty() ? "..." : meant->default_text;
  }
  return node.Error(absl::StrCat(what, " takes a map such as {", meant->name, ": ", value,
                                 "}, not ", node.Found()));
}

absl::Status NameParam(const absl::Status& status, absl::string_view name) {
  if (status.ok()) return status;
  static constexpr absl::string_view kSeparator = ": ";
  const size_t at = status.message().find(": must ");
  // What is wrong with a part of the value, such as an op in `ops`, says itself what it is about
  // behind that part's place.
  if (at == absl::string_view::npos || !EndsWithPlace(status.message().substr(0, at)))
    return status;
  return WithMessage(
      status, absl::StrCat(status.message().substr(0, at + kSeparator.size()), "'", name, "' ",
                           status.message().substr(at + kSeparator.size())));
}

}  // namespace feedwater::server
