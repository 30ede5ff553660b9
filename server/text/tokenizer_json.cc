#include "server/text/tokenizer_json.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/text/bpe.h"
#include "server/text/json_stages.h"
#include "server/text/json_vocabulary.h"
#include "server/text/unigram.h"
#include "server/text/word_piece.h"
#include "server/text/word_tokenizer.h"

namespace feedwater::server {
namespace {

using nlohmann::json;

constexpr size_t kMostAddedTokens = 10'000;

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

const json& Section(const json& root, const char* key) {
  static const json* const kNull = new json();
  const auto found = root.find(key);
  return found == root.end() ? *kNull : *found;
}

absl::StatusOr<std::unique_ptr<const WordModel>> MakeBpe(const json& model, bool is_byte_level,
                                                         JsonVocabulary* read) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(
      model, "model",
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  const json& dropout = Section(model, "dropout");
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0)) {
    return Wrong("model has dropout, with which a text has no fixed ids; cure: \"dropout\": null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    FW_ASSIGN_OR_RETURN(const std::string mark, JsonText(model, "model", key, ""));
    if (!mark.empty())
      return Wrong(absl::StrCat("model has ", key, " '", Printable(mark),
                                "', which is not done here for BPE"));
  }
  BpeRules rules;
  rules.is_byte_level = is_byte_level;
  FW_ASSIGN_OR_RETURN(rules.ignore_merges, JsonBool(model, "model", "ignore_merges", false));
  FW_ASSIGN_OR_RETURN(rules.byte_fallback, JsonBool(model, "model", "byte_fallback", false));
  FW_ASSIGN_OR_RETURN(rules.fuses_unknown, JsonBool(model, "model", "fuse_unk", false));
  FW_ASSIGN_OR_RETURN(rules.unknown, JsonText(model, "model", "unk_token", ""));
  if (!is_byte_level && rules.unknown.empty() && !Section(model, "unk_token").is_null())
    return Wrong("model has an empty unk_token; cure: \"unk_token\": null");
  return Bpe::Create(std::move(read->vocabulary), read->merges, rules);
}

absl::StatusOr<std::unique_ptr<const WordModel>> MakeUnigram(const json& model,
                                                             JsonVocabulary* read) {
  FW_RETURN_IF_ERROR(CheckJsonKeys(model, "model", {"type", "unk_id", "byte_fallback", "vocab"}));
  FW_ASSIGN_OR_RETURN(const bool falls_back, JsonBool(model, "model", "byte_fallback", false));
  const json& unknown = Section(model, "unk_id");
  const auto tokens = static_cast<int64_t>(read->vocabulary.size());
  if (!unknown.is_null() && !(unknown.is_number_integer() && unknown.get<int64_t>() >= 0 &&
                              unknown.get<int64_t>() < tokens)) {
    return Wrong(absl::StrCat("model has an unk_id that is no number from 0 to ", tokens - 1));
  }
  const int32_t unknown_id = unknown.is_null() ? -1 : unknown.get<int32_t>();
  return Unigram::Create(std::move(read->vocabulary), std::move(read->scores), unknown_id,
                         falls_back);
}

absl::StatusOr<std::unique_ptr<const WordModel>> MakeModel(const json& model, bool is_byte_level,
                                                           JsonVocabulary* read) {
  FW_ASSIGN_OR_RETURN(const std::string type, JsonType(model, "model"));
  if (type == "BPE") return MakeBpe(model, is_byte_level, read);
  if (is_byte_level)
    return Wrong(absl::StrCat("pre_tokenizer has ByteLevel, which is done for BPE alone, not for ",
                              Printable(type)));
  if (type == "Unigram") return MakeUnigram(model, read);
  FW_ASSIGN_OR_RETURN(const std::string unknown, JsonText(model, "model", "unk_token", ""));
  if (type == "WordPiece") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(model, "model",
                                     {"type", "unk_token", "continuing_subword_prefix",
                                      "max_input_chars_per_word", "vocab", "merges"}));
    if (unknown.empty())
      return Wrong("model has no unk_token, which words that are no tokens become");
    FW_ASSIGN_OR_RETURN(const std::string continuing,
                        JsonText(model, "model", "continuing_subword_prefix", "##"));
    const json& most = Section(model, "max_input_chars_per_word");
    const int64_t characters = most.is_number_integer() ? most.get<int64_t>() : 100;
    return WordPiece::Create(std::move(read->vocabulary), unknown, continuing, characters);
  }
  if (type == "WordLevel") {
    FW_RETURN_IF_ERROR(CheckJsonKeys(model, "model", {"type", "unk_token", "vocab", "merges"}));
    return WholeWords::Create(std::move(read->vocabulary), unknown);
  }
  return Wrong(absl::StrCat(
      "model is of type '", Printable(type),
      "', which is not done here; BPE, Unigram, WordPiece and WordLevel are. Cure: another "
      "tokenizer, or ids that are made before: `format: tokens`"));
}

// A token as it stands in normalized text, where it is looked for.
absl::StatusOr<std::string> NormalizedOf(const std::string& content, const Normalizer& normalizer) {
  alignas(std::max_align_t) std::byte memory[32 << 10];
  TextScratch scratch(memory, sizeof(memory));
  WorkClock clock;
  clock.Begin(/*limit_ms=*/3'600'000, /*gone=*/nullptr);
  IdSink nowhere(nullptr, 0, Truncation::kRight);
  Encoding encoding{scratch, clock, nowhere};
  absl::string_view normalized;
  size_t origin = 0;
  if (normalizer.Run(content, &encoding, &normalized, &origin)) return std::string(normalized);
  return absl::InvalidArgumentError(absl::StrCat("added_tokens: '", Printable(content),
                                                 "' becomes too long where it is normalized; cure: "
                                                 "\"normalized\": false"));
}

absl::Status AddToken(const json& entry, const std::string& where, const Vocabulary& written,
                      const Normalizer& normalizer, WordTokenizer::Parts* parts) {
  if (!entry.is_object()) return Wrong(absl::StrCat(where, " is no map"));
  FW_RETURN_IF_ERROR(CheckJsonKeys(
      entry, where, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedTokens::Token token;
  FW_ASSIGN_OR_RETURN(token.content, JsonText(entry, where, "content", ""));
  const json& id = Section(entry, "id");
  if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMostTokens)
    return Wrong(absl::StrCat(where, " needs an 'id' from 0 to ", kMostTokens - 1));
  token.id = static_cast<int32_t>(id.get<int64_t>());
  FW_ASSIGN_OR_RETURN(const bool is_word, JsonBool(entry, where, "single_word", false));
  FW_ASSIGN_OR_RETURN(token.takes_left, JsonBool(entry, where, "lstrip", false));
  FW_ASSIGN_OR_RETURN(token.takes_right, JsonBool(entry, where, "rstrip", false));
  FW_ASSIGN_OR_RETURN(const bool special, JsonBool(entry, where, "special", false));
  FW_ASSIGN_OR_RETURN(const bool normalized, JsonBool(entry, where, "normalized", !special));
  if (is_word)
    return Wrong(absl::StrCat(where, " '", Printable(token.content),
                              "' has single_word, which is not done here"));
  const int32_t in_model = written.Find(token.content);
  if (in_model != token.id && (in_model >= 0 || written.has_id(token.id))) {
    return Wrong(absl::StrCat(where, " '", Printable(token.content), "' has the id ", token.id,
                              in_model >= 0 ? absl::StrCat(", and ", in_model, " in model.vocab")
                                            : ", which another token of model.vocab has"));
  }
  // As Hugging Face counts on, whatever stands there.
  int32_t next = static_cast<int32_t>(written.size());
  for (const auto& [content, id] : parts->added_ids) {
    if (id == token.id)
      return Wrong(absl::StrCat(where, " '", Printable(token.content), "' has the id ", id,
                                ", as '", Printable(content), "' has"));
    next = std::max(next, id + 1);
  }
  if (in_model < 0 && token.id != next) {
    return Wrong(absl::StrCat(where, " '", Printable(token.content), "' has the id ", token.id,
                              ", and would get ", next,
                              " from tokenizers, which gives a token that model.vocab does not "
                              "have the next free id; cure: load the file with tokenizers and "
                              "save it"));
  }
  parts->added_ids.emplace_back(token.content, token.id);
  if (!normalized) return parts->added.Add(std::move(token));
  if (token.content.size() <= AddedTokens::kMostTokenBytes) {
    FW_ASSIGN_OR_RETURN(token.content, NormalizedOf(token.content, normalizer));
  }
  return parts->added_afterwards.Add(std::move(token));
}

// Where a word comes from the first character of the text is known behind these alone.
absl::Status CheckOrigins(const WordTokenizer::Parts& parts) {
  const auto is_first = [](const SplitStep& step) {
    return step.kind == SplitStep::Kind::kPrefixFirst;
  };
  if (std::none_of(parts.splitter.begin(), parts.splitter.end(), is_first)) return absl::OkStatus();
  for (const NormalizerStep& step : parts.normalizer) {
    using Kind = NormalizerStep::Kind;
    if (step.kind != Kind::kNfc && step.kind != Kind::kNfd && step.kind != Kind::kNfkc &&
        step.kind != Kind::kNfkd)
      continue;
    return Wrong(
        "pre_tokenizer has Metaspace with \"prepend_scheme\": \"first\", which is not done here "
        "where the normalizer has NFC, NFD, NFKC, NFKD or strip_accents. Cure: another tokenizer, "
        "or ids that are made before: `format: tokens`");
  }
  return absl::OkStatus();
}

absl::Status TakeIds(const std::vector<int64_t>& ids, int32_t max_id, std::vector<int32_t>* out) {
  for (const int64_t id : ids) {
    if (id < 0 || id > max_id)
      return Wrong(absl::StrCat("post_processor adds the id ", id,
                                ", beyond the vocabulary, whose last one is ", max_id));
    out->push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> MakeTokenizerOfJson(absl::string_view text) {
  FW_ASSIGN_OR_RETURN(JsonVocabulary read, ReadJsonVocabulary(text));
  const json& root = read.rest;
  FW_RETURN_IF_ERROR(
      CheckJsonKeys(root, "it",
                    {"version", "truncation", "padding", "added_tokens", "normalizer",
                     "pre_tokenizer", "post_processor", "decoder", "model"}));
  for (const char* key : {"truncation", "padding"}) {
    if (!Section(root, key).is_null()) {
      return Wrong(absl::StrCat("it has '", key, "' of its own; cure: tokenizer.no_", key,
                                "() before it is saved, or \"", key,
                                "\": null, and max_length, truncation and pad_token of the op"));
    }
  }
  if (!Section(root, "model").is_object()) return Wrong("it has no 'model'");
  FW_ASSIGN_OR_RETURN(const std::string type, JsonType(Section(root, "model"), "model"));
  if (read.is_list != (type == "Unigram")) {
    return Wrong(absl::StrCat("model is of type '", Printable(type), "', and its vocab a ",
                              read.is_list ? "list, as Unigram's is"
                                           : "map; that of Unigram is a list of [token, score]"));
  }
  WordTokenizer::Parts parts;
  FW_ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(Section(root, "normalizer")));
  FW_ASSIGN_OR_RETURN(SplitterFound splitter, ReadSplitter(Section(root, "pre_tokenizer")));
  parts.splitter = std::move(splitter.steps);
  FW_RETURN_IF_ERROR(CheckOrigins(parts));
  FW_RETURN_IF_ERROR(read.vocabulary.Finish());
  if (read.vocabulary.size() == 0) return Wrong("model.vocab is empty");
  const json& added = Section(root, "added_tokens");
  if (!added.is_null() && !added.is_array()) return Wrong("added_tokens is no list");
  if (added.size() > kMostAddedTokens) {
    return Wrong(absl::StrCat("added_tokens has ", added.size(), " entries; at most ",
                              kMostAddedTokens, " are read"));
  }
  int32_t max_id = read.vocabulary.max_id();
  const Normalizer normalizer(parts.normalizer);
  for (size_t i = 0; i < added.size(); ++i) {
    FW_RETURN_IF_ERROR(AddToken(added[i], absl::StrCat("added_tokens[", i, "]"), read.vocabulary,
                                normalizer, &parts));
    max_id = std::max(max_id, parts.added_ids.back().second);
  }
  FW_ASSIGN_OR_RETURN(parts.model,
                      MakeModel(Section(root, "model"), splitter.is_byte_level, &read));
  FW_ASSIGN_OR_RETURN(const SpecialTokens special,
                      ReadPostProcessor(Section(root, "post_processor")));
  FW_RETURN_IF_ERROR(TakeIds(special.before, max_id, &parts.before));
  FW_RETURN_IF_ERROR(TakeIds(special.after, max_id, &parts.after));
  return WordTokenizer::Create(std::move(parts));
}

}  // namespace feedwater::server
