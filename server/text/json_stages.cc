#include "server/text/json_stages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

using nlohmann::json;
using Kind = SplitStep::Kind;

absl::Status Wrong(const std::string& where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, " ", what));
}

absl::Status NotDone(const std::string& where, const std::string& type, absl::string_view what_is) {
  return Wrong(where,
               absl::StrCat("is of type '", Printable(type), "', which is not done here; ", what_is,
                            " are. Cure: another tokenizer, or ids that are made before: "
                            "`format: tokens`"));
}

// The list of a Sequence.
absl::StatusOr<const json*> ListOf(const json& node, const std::string& where, const char* key) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(node, where, {"type", key}));
  const auto list = node.find(key);
  if (list == node.end() || !list->is_array())
    return Wrong(where, absl::StrCat("needs '", key, "', a list"));
  return &*list;
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
    if (cleans) steps->push_back(NormalizerStep::kClean);
    if (chinese) steps->push_back(NormalizerStep::kSeparateIdeographs);
    if (strips) {
      steps->push_back(NormalizerStep::kNfd);
      steps->push_back(NormalizerStep::kDropNonspacingMarks);
    }
    if (lowers) steps->push_back(NormalizerStep::kLower);
    return absl::OkStatus();
  }
  constexpr std::pair<const char*, NormalizerStep> kSimple[] = {
      {"NFC", NormalizerStep::kNfc},         {"NFD", NormalizerStep::kNfd},
      {"NFKC", NormalizerStep::kNfkc},       {"NFKD", NormalizerStep::kNfkd},
      {"Lowercase", NormalizerStep::kLower}, {"StripAccents", NormalizerStep::kDropMarks}};
  for (const auto& [name, step] : kSimple) {
    if (type != name) continue;
    steps->push_back(step);
    return CheckJsonKeys(node, where, {"type"});
  }
  return NotDone(where, type,
                 "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents and Sequence");
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
  if (behavior != "Isolated" && behavior != "Removed") {
    return Wrong(where, absl::StrCat("has behavior '", Printable(behavior),
                                     "', which is not done here; Isolated and Removed are"));
  }
  const Kind kind = behavior == "Isolated" ? Kind::kIsolateMatches
                    : inverts              ? Kind::kKeepMatches
                                           : Kind::kDropMatches;
  const auto pattern = node.find("pattern");
  if (pattern == node.end() || !pattern->is_object() || pattern->size() != 1 ||
      !pattern->begin()->is_string()) {
    return Wrong(where, "needs 'pattern': {\"Regex\": \"...\"} or {\"String\": \"...\"}");
  }
  const auto text = pattern->begin()->get<std::string>();
  if (pattern->begin().key() == "Regex")
    return AddPattern(where, kind, Pattern::Create(text), found);
  if (pattern->begin().key() != "String")
    return Wrong(where, absl::StrCat("has a pattern of kind '", Printable(pattern->begin().key()),
                                     "'; Regex and String are read"));
  return AddPattern(where, kind, Pattern::OfString(text), found);
}

absl::Status AddByteLevel(const json& node, const std::string& where, SplitterFound* found) {
  FW_RETURN_IF_ERROR(
      CheckJsonKeys(node, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  FW_ASSIGN_OR_RETURN(const bool adds_space, JsonBool(node, where, "add_prefix_space", true));
  FW_ASSIGN_OR_RETURN(const bool splits, JsonBool(node, where, "use_regex", true));
  if (adds_space) found->steps.push_back({Kind::kPrefixSpace});
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
                 "Split and Sequence");
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
