#include "server/text/json_stages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using Kind = SplitStep::Kind;
using Normal = NormalizerStep::Kind;

absl::Status Wrong(const std::string& where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, " ", what));
}

absl::Status NotDone(const std::string& where, const std::string& type, absl::string_view what_is) {
  return Wrong(where,
               absl::StrCat("is of type '", Printable(type), "', which is not done here; ", what_is,
                            " are. Cure: another tokenizer, or ids that are made before: "
                            "`format: tokens`"));
}

constexpr size_t kMostReplacedBytes = 256;  // of what a normalizer looks for, or writes
constexpr char kRunsOfSpaces[] = " {2,}";   // as the files of SentencePiece's models have it

// What stands under `pattern`.
struct WrittenPattern {
  bool is_expression;
  std::string text;
};
absl::StatusOr<WrittenPattern> PatternOf(const json& node, const std::string& where) {
  const auto pattern = node.find("pattern");
  if (pattern == node.end() || !pattern->is_object() || pattern->size() != 1 ||
      !pattern->begin()->is_string()) {
    return Wrong(where, "needs 'pattern': {\"Regex\": \"...\"} or {\"String\": \"...\"}");
  }
  const std::string& kind = pattern->begin().key();
  if (kind != "Regex" && kind != "String")
    return Wrong(where, absl::StrCat("has a pattern of kind '", Printable(kind),
                                     "'; Regex and String are read"));
  return WrittenPattern{kind == "Regex", pattern->begin()->get<std::string>()};
}

// The list of a Sequence.
absl::StatusOr<const json*> ListOf(const json& node, const std::string& where, const char* key) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", key}));
  const auto list = node.find(key);
  if (list == node.end() || !list->is_array())
    return Wrong(where, absl::StrCat("needs '", key, "', a list"));
  return &*list;
}

// A key's text as characters. InvalidArgument: it is too long.
absl::StatusOr<std::vector<int32_t>> Characters(const json& node, const std::string& where,
                                                const char* key) {
  FW_ASSIGN_OR_RETURN(const std::string text, JsonText(node, where, key, ""));
  if (text.size() > kMostReplacedBytes) {
    return Wrong(where, absl::StrCat("has '", key, "' of ", text.size(), " bytes; at most ",
                                     kMostReplacedBytes, " are read"));
  }
  std::vector<int32_t> characters;
  for (size_t at = 0; at < text.size();) characters.push_back(NextCharacter(text, &at));
  return characters;
}

absl::Status AddReplace(const json& node, const std::string& where,
                        std::vector<NormalizerStep>* steps) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "pattern", "content"}));
  FW_ASSIGN_OR_RETURN(std::vector<int32_t> to, Characters(node, where, "content"));
  FW_ASSIGN_OR_RETURN(const WrittenPattern pattern, PatternOf(node, where));
  if (pattern.is_expression) {
    if (pattern.text != kRunsOfSpaces) {
      return Wrong(where, absl::StrCat("has the regular expression '", Printable(pattern.text),
                                       "', which is not done here; '", kRunsOfSpaces,
                                       "' and strings are. Cure: {\"String\": \"...\"}, or ids "
                                       "that are made before: `format: tokens`"));
    }
    steps->push_back({Normal::kReplaceRuns, {' '}, std::move(to)});
    return absl::OkStatus();
  }
  FW_ASSIGN_OR_RETURN(std::vector<int32_t> from,
                      Characters((*node.find("pattern")), where, "String"));
  if (from.empty()) return Wrong(where, "has an empty 'pattern'");
  steps->push_back({Normal::kReplace, std::move(from), std::move(to)});
  return absl::OkStatus();
}

absl::Status AddPrecompiled(const json& node, const std::string& where,
                            std::vector<NormalizerStep>* steps) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "precompiled_charsmap"}));
  FW_ASSIGN_OR_RETURN(const std::string written, JsonText(node, where, "precompiled_charsmap", ""));
  std::string bytes;
  if (written.empty() || !absl::Base64Unescape(written, &bytes) || bytes.empty())
    return Wrong(where, "needs 'precompiled_charsmap', a text in base64");
  absl::StatusOr<CharacterMap> map = CharacterMap::Create(bytes);
  if (!map.ok()) return Annotate(map.status(), where);
  if (!map->MakesText())
    return Wrong(where, "has a 'precompiled_charsmap' that makes bytes which are not UTF-8");
  steps->push_back(
      {Normal::kMapCharacters, {}, {}, std::make_shared<const CharacterMap>(*std::move(map))});
  return absl::OkStatus();
}

absl::Status AddNormalizer(const json& node, const std::string& where,
                           std::vector<NormalizerStep>* steps) {
  FW_ASSIGN_OR_RETURN(const std::string type, JsonType(node, where));
  if (type.empty()) return absl::OkStatus();
  if (type == "Sequence") {
    FW_ASSIGN_OR_RETURN(const json* const list, ListOf(node, where, "normalizers"));
    for (size_t i = 0; i < list->size(); ++i)
      FW_RETURN_IF_ERROR(
          AddNormalizer((*list)[i], absl::StrCat(where, ".normalizers[", i, "]"), steps));
    return absl::OkStatus();
  }
  if (type == "BertNormalizer") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(
        node, where, {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}));
    FW_ASSIGN_OR_RETURN(const bool cleans, JsonBool(node, where, "clean_text", true));
    FW_ASSIGN_OR_RETURN(const bool chinese, JsonBool(node, where, "handle_chinese_chars", true));
    FW_ASSIGN_OR_RETURN(const bool lowers, JsonBool(node, where, "lowercase", true));
    FW_ASSIGN_OR_RETURN(const bool strips, JsonBool(node, where, "strip_accents", lowers));
    if (cleans) steps->push_back({Normal::kClean});
    if (chinese) steps->push_back({Normal::kSeparateIdeographs});
    if (strips) {
      steps->push_back({Normal::kNfd});
      steps->push_back({Normal::kDropNonspacingMarks});
    }
    if (lowers) steps->push_back({Normal::kLower});
    return absl::OkStatus();
  }
  constexpr std::pair<const char*, Normal> kSimple[] = {
      {"NFC", Normal::kNfc},   {"NFD", Normal::kNfd},         {"NFKC", Normal::kNfkc},
      {"NFKD", Normal::kNfkd}, {"Lowercase", Normal::kLower}, {"StripAccents", Normal::kDropMarks}};
  for (const auto& [name, step] : kSimple) {
    if (type != name) continue;
    steps->push_back({step});
    return CheckJsonKeys(node, where, {"type"});
  }
  if (type == "Strip") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "strip_left", "strip_right"}));
    FW_ASSIGN_OR_RETURN(const bool left, JsonBool(node, where, "strip_left", false));
    FW_ASSIGN_OR_RETURN(const bool right, JsonBool(node, where, "strip_right", false));
    if (left) steps->push_back({Normal::kStripLeft});
    if (right) steps->push_back({Normal::kStripRight});
    return absl::OkStatus();
  }
  if (type == "Prepend") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "prepend"}));
    FW_ASSIGN_OR_RETURN(std::vector<int32_t> text, Characters(node, where, "prepend"));
    if (text.empty()) return Wrong(where, "has no 'prepend', or an empty one");
    steps->push_back({Normal::kPrepend, {}, std::move(text)});
    return absl::OkStatus();
  }
  if (type == "Replace") return AddReplace(node, where, steps);
  if (type == "Precompiled") return AddPrecompiled(node, where, steps);
  return NotDone(where, type,
                 "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, "
                 "Replace, Precompiled and Sequence");
}

absl::Status AddPattern(const std::string& where, Kind kind,
                        absl::StatusOr<std::shared_ptr<const Pattern>> pattern,
                        SplitterFound* found) {
  if (!pattern.ok()) return Annotate(pattern.status(), where);
  found->steps.push_back({kind, *std::move(pattern)});
  return absl::OkStatus();
}

absl::Status AddSplit(const json& node, const std::string& where, SplitterFound* found) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "pattern", "behavior", "invert"}));
  FW_ASSIGN_OR_RETURN(const std::string behavior, JsonText(node, where, "behavior", ""));
  FW_ASSIGN_OR_RETURN(const bool inverts, JsonBool(node, where, "invert", false));
  const std::pair<const char*, Kind> kinds[] = {
      {"Isolated", Kind::kIsolateMatches},
      {"Removed", inverts ? Kind::kKeepMatches : Kind::kDropMatches},
      {"MergedWithPrevious", Kind::kJoinMatchesToPrevious},
      {"MergedWithNext", Kind::kJoinMatchesToNext}};
  const auto* const kind = std::find_if(std::begin(kinds), std::end(kinds),
                                        [&](const auto& one) { return behavior == one.first; });
  if (kind == std::end(kinds)) {
    return Wrong(where, absl::StrCat("has behavior '", Printable(behavior),
                                     "', which is not done here; Isolated, Removed, "
                                     "MergedWithPrevious and MergedWithNext are"));
  }
  const bool joins = kind - std::begin(kinds) >= 2;
  if (inverts && joins)
    return Wrong(where, absl::StrCat("has invert with behavior '", behavior,
                                     "', which is not done here; cure: \"invert\": false"));
  FW_ASSIGN_OR_RETURN(const WrittenPattern pattern, PatternOf(node, where));
  return AddPattern(
      where, kind->second,
      pattern.is_expression ? Pattern::Create(pattern.text) : Pattern::OfString(pattern.text),
      found);
}

// Each ' ' becomes the replacement, which stands before words, too, and words are split there.
absl::Status AddMetaspace(const json& node, const std::string& where, SplitterFound* found) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(
      node, where,
      {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  FW_ASSIGN_OR_RETURN(const std::string mark, JsonText(node, where, "replacement", ""));
  size_t behind = 0;
  if (!mark.empty()) NextCharacter(mark, &behind);
  if (mark.empty() || behind != mark.size())
    return Wrong(where, "needs 'replacement', one character");
  FW_ASSIGN_OR_RETURN(const std::string scheme, JsonText(node, where, "prepend_scheme", "always"));
  FW_ASSIGN_OR_RETURN(const bool splits, JsonBool(node, where, "split", true));
  FW_ASSIGN_OR_RETURN(const bool prefixes, JsonBool(node, where, "add_prefix_space", true));
  if (!prefixes && scheme != "never") {
    return Wrong(where,
                 "has \"add_prefix_space\": false, and no \"prepend_scheme\": \"never\", which "
                 "tokenizers refuses, too; cure: both, or the second alone");
  }
  constexpr std::pair<const char*, Kind> kSchemes[] = {
      {"always", Kind::kPrefixWords}, {"first", Kind::kPrefixFirst}, {"never", Kind::kSpaces}};
  const auto* const kind = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                        [&](const auto& one) { return scheme == one.first; });
  if (kind == std::end(kSchemes)) {
    return Wrong(where, absl::StrCat("has prepend_scheme '", Printable(scheme),
                                     "', which is none of always, first and never"));
  }
  FW_RETURN_IF_ERROR(AddPattern(where, kind->second, Pattern::OfString(mark), found));
  if (!splits) return absl::OkStatus();
  return AddPattern(where, Kind::kJoinMatchesToNext, Pattern::OfString(mark), found);
}

absl::Status AddByteLevel(const json& node, const std::string& where, SplitterFound* found) {
  FW_RETURN_IF_ERROR(
      CheckJsonKeys(node, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  FW_ASSIGN_OR_RETURN(const bool adds_space, JsonBool(node, where, "add_prefix_space", true));
  FW_ASSIGN_OR_RETURN(const bool splits, JsonBool(node, where, "use_regex", true));
  if (adds_space)
    FW_RETURN_IF_ERROR(AddPattern(where, Kind::kPrefixWords, Pattern::OfString(" "), found));
  if (splits) {
    FW_RETURN_IF_ERROR(AddPattern(where, Kind::kIsolateMatches, Pattern::Gpt2(), found));
  }
  found->is_byte_level = true;
  return absl::OkStatus();
}

absl::Status AddSplitter(const json& node, const std::string& where, SplitterFound* found) {
  FW_ASSIGN_OR_RETURN(const std::string type, JsonType(node, where));
  if (type.empty()) return absl::OkStatus();
  if (type == "Sequence") {
    FW_ASSIGN_OR_RETURN(const json* const list, ListOf(node, where, "pretokenizers"));
    for (size_t i = 0; i < list->size(); ++i)
      FW_RETURN_IF_ERROR(
          AddSplitter((*list)[i], absl::StrCat(where, ".pretokenizers[", i, "]"), found));
    return absl::OkStatus();
  }
  if (found->is_byte_level)
    return Wrong(where, "stands behind ByteLevel, which is read as the last one alone");
  if (type == "ByteLevel") return AddByteLevel(node, where, found);
  if (type == "Split") return AddSplit(node, where, found);
  if (type == "Metaspace") return AddMetaspace(node, where, found);
  if (type == "BertPreTokenizer" || type == "WhitespaceSplit") {
    found->steps.push_back({Kind::kDropWhiteSpace});
    if (type == "BertPreTokenizer") found->steps.push_back({Kind::kIsolatePunctuation});
    return CheckJsonKeys(node, where, {"type"});
  }
  if (type == "Whitespace") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type"}));
    return AddPattern(where, Kind::kKeepMatches, Pattern::WordOrRest(), found);
  }
  if (type == "Punctuation") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "behavior"}));
    FW_ASSIGN_OR_RETURN(const std::string behavior, JsonText(node, where, "behavior", "Isolated"));
    if (behavior != "Isolated")
      return Wrong(where, absl::StrCat("has behavior '", Printable(behavior),
                                       "', which is not done here; Isolated is"));
    found->steps.push_back({Kind::kIsolatePunctuation});
    return absl::OkStatus();
  }
  if (type == "Digits") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "individual_digits"}));
    FW_ASSIGN_OR_RETURN(const bool alone, JsonBool(node, where, "individual_digits", false));
    found->steps.push_back({alone ? Kind::kIsolateDigits : Kind::kGroupDigits});
    return absl::OkStatus();
  }
  return NotDone(where, type,
                 "ByteLevel, BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation, Digits, "
                 "Split, Metaspace and Sequence");
}

// ["[SEP]", 102]
absl::Status AddPair(const json& node, const std::string& where, const char* key,
                     std::vector<int64_t>* ids) {
  const auto pair = node.find(key);
  if (pair == node.end() || !pair->is_array() || pair->size() != 2 || !(*pair)[0].is_string() ||
      !(*pair)[1].is_number_integer()) {
    return Wrong(where, absl::StrCat("needs '", key, "': [token, id]"));
  }
  ids->push_back((*pair)[1].get<int64_t>());
  return absl::OkStatus();
}

absl::Status AddTemplate(const json& node, const std::string& where, SpecialTokens* found) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", "single", "pair", "special_tokens"}));
  const auto single = node.find("single"), tokens = node.find("special_tokens");
  if (single == node.end() || !single->is_array() || tokens == node.end() || !tokens->is_object())
    return Wrong(where, "needs 'single', a list, and 'special_tokens', a map");
  bool is_behind = false;
  for (size_t i = 0; i < single->size(); ++i) {
    const json& piece = (*single)[i];
    const std::string at = absl::StrCat(where, ".single[", i, "]");
    if (!piece.is_object() || piece.size() != 1 || !piece.begin()->is_object())
      return Wrong(at, "is neither {SpecialToken: ...} nor {Sequence: ...}");
    FW_ASSIGN_OR_RETURN(const std::string id, JsonText(*piece.begin(), at, "id", ""));
    if (piece.begin().key() == "Sequence") {
      if (is_behind || id != "A") return Wrong(at, "is not the one sequence A of a template");
      is_behind = true;
      continue;
    }
    if (piece.begin().key() != "SpecialToken")
      return Wrong(at, absl::StrCat("is '", Printable(piece.begin().key()),
                                    "'; SpecialToken and Sequence are read"));
    const auto token = tokens->find(id);
    const auto ids = token == tokens->end() || !token->is_object() ? token : token->find("ids");
    if (token == tokens->end() || !token->is_object() || ids == token->end() || !ids->is_array())
      return Wrong(
          at, absl::StrCat("names '", Printable(id), "', of which special_tokens has no 'ids'"));
    for (const json& one : *ids) {
      if (!one.is_number_integer()) return Wrong(at, "has an id that is no integer");
      (is_behind ? found->after : found->before).push_back(one.get<int64_t>());
    }
  }
  return is_behind ? absl::OkStatus() : Wrong(where, "has no {Sequence: {id: A}} in 'single'");
}

absl::Status AddPostProcessor(const json& node, const std::string& where, SpecialTokens* found) {
  FW_ASSIGN_OR_RETURN(const std::string type, JsonType(node, where));
  if (type.empty()) return absl::OkStatus();
  if (type == "Sequence") {
    FW_ASSIGN_OR_RETURN(const json* const list, ListOf(node, where, "processors"));
    for (size_t i = 0; i < list->size(); ++i)
      FW_RETURN_IF_ERROR(
          AddPostProcessor((*list)[i], absl::StrCat(where, ".processors[", i, "]"), found));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") return absl::OkStatus();  // moves offsets, no ids
  if (!found->before.empty() || !found->after.empty())
    return Wrong(where, "is the second one that adds tokens; one is read");
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    FW_RETURN_IF_ERROR(
        CheckJsonKeys(node, where, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    FW_RETURN_IF_ERROR(AddPair(node, where, "cls", &found->before));
    return AddPair(node, where, "sep", &found->after);
  }
  if (type == "TemplateProcessing") return AddTemplate(node, where, found);
  return NotDone(where, type,
                 "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence");
}

}  // namespace

absl::Status CheckJsonKeys(const json& object, const std::string& where,
                           std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items()) {
    bool is_known = false;
    for (const char* name : known) is_known |= key == name;
    if (!is_known)
      return Wrong(where, absl::StrCat("has '", Printable(key), "', which is not known here"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> JsonBool(const json& object, const std::string& where, const char* key,
                              bool otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  return Wrong(where, absl::StrCat("has '", key, "', which is neither true nor false"));
}

absl::StatusOr<std::string> JsonText(const json& object, const std::string& where, const char* key,
                                     const std::string& otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (found->is_string()) return found->get<std::string>();
  return Wrong(where, absl::StrCat("has '", key, "', which is no text"));
}

absl::StatusOr<std::string> JsonType(const json& object, const std::string& where) {
  if (object.is_null()) return std::string();
  if (!object.is_object()) return Wrong(where, "is no map");
  FW_ASSIGN_OR_RETURN(std::string type, JsonText(object, where, "type", ""));
  if (type.empty()) return Wrong(where, "has no 'type'");
  return type;
}

absl::StatusOr<std::vector<NormalizerStep>> ReadNormalizer(const json& node) {
  std::vector<NormalizerStep> steps;
  FW_RETURN_IF_ERROR(AddNormalizer(node, "normalizer", &steps));
  if (steps.size() <= kMostSplitSteps) return steps;
  return Wrong("normalizer", absl::StrCat("has ", steps.size(), " steps; at most ", kMostSplitSteps,
                                          " are done"));
}

absl::StatusOr<SplitterFound> ReadSplitter(const json& node) {
  SplitterFound found;
  FW_RETURN_IF_ERROR(AddSplitter(node, "pre_tokenizer", &found));
  if (found.steps.size() <= kMostSplitSteps) return found;
  return Wrong("pre_tokenizer", absl::StrCat("has ", found.steps.size(), " steps; at most ",
                                             kMostSplitSteps, " are done"));
}

absl::StatusOr<SpecialTokens> ReadPostProcessor(const json& node) {
  SpecialTokens found;
  FW_RETURN_IF_ERROR(AddPostProcessor(node, "post_processor", &found));
  return found;
}

}  // namespace feedwater::server
