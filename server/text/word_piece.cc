#include "server/text/word_piece.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

bool IsCharacterStart(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

absl::StatusOr<int32_t> FindUnknown(const Vocabulary& vocabulary, const std::string& unknown) {
  if (unknown.empty()) return -1;
  const int32_t id = vocabulary.Find(unknown);
  if (id >= 0) return id;
  return absl::InvalidArgumentError(
      absl::StrCat("the token for unknown words, '", Printable(unknown),
                   "', is not in the vocabulary; add it there or name another one"));
}

// `own`: the id that the file names, or -1.
bool AddUnknown(absl::string_view word, int32_t own, Encoding* encoding) {
  const int32_t id = own >= 0 ? own : encoding->unknown;
  if (id >= 0) return encoding->ids.Add(id);
  return encoding->Fail(absl::InvalidArgumentError(
      absl::StrCat("the word '", Printable(word),
                   "' is not in the vocabulary, and unknown_token is not given; cure: "
                   "unknown_token: \"<unk>\", a token of the vocabulary")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WordPiece>> WordPiece::Create(Vocabulary vocabulary,
                                                             const std::string& unknown,
                                                             const std::string& continuing,
                                                             int64_t max_word_characters) {
  if (max_word_characters < 1 || max_word_characters > kMostWordCharacters) {
    return absl::InvalidArgumentError(absl::StrCat("max_input_chars_per_word is ",
                                                   max_word_characters, ", and must be from 1 to ",
                                                   kMostWordCharacters, "; BERT has 100"));
  }
  auto model = std::make_unique<WordPiece>();
  FW_ASSIGN_OR_RETURN(model->unknown_, FindUnknown(vocabulary, unknown));
  model->max_word_characters_ = max_word_characters;
  const auto rest_of = [&](size_t i) {  // "": the token does not go on with a word
    absl::string_view token = vocabulary.token(i);
    return absl::ConsumePrefix(&token, continuing) ? token : absl::string_view();
  };
  size_t tokens = 0, bytes = 0;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    tokens += rest_of(i).empty() ? 0 : 1;
    bytes += rest_of(i).size();
  }
  model->continuing_.Reserve(tokens, bytes);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    if (!rest_of(i).empty())
      FW_RETURN_IF_ERROR(model->continuing_.Add(rest_of(i), vocabulary.id(i)));
  }
  FW_RETURN_IF_ERROR(model->continuing_.Finish());
  model->vocabulary_ = std::move(vocabulary);
  return model;
}

bool WordPiece::Encode(absl::string_view word, Encoding* encoding) const {
  int64_t characters = 0;
  for (const char byte : word) characters += IsCharacterStart(byte) ? 1 : 0;
  if (characters > max_word_characters_) return AddUnknown(word, unknown_, encoding);
  int32_t ids[kMostWordCharacters];
  size_t count = 0;
  for (size_t start = 0; start < word.size();) {
    const Vocabulary& known = start == 0 ? vocabulary_ : continuing_;
    size_t end = std::min(word.size(), start + known.max_token_bytes());
    int32_t id = -1;
    for (; end > start; --end) {
      if (end < word.size() && !IsCharacterStart(word[end])) continue;
      id = known.Find(word.substr(start, end - start));
      if (id >= 0) break;
    }
    if (id < 0) return AddUnknown(word, unknown_, encoding);
    ids[count++] = id;
    start = end;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!encoding->ids.Add(ids[i])) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<WholeWords>> WholeWords::Create(Vocabulary vocabulary,
                                                               const std::string& unknown) {
  auto model = std::make_unique<WholeWords>();
  FW_ASSIGN_OR_RETURN(model->unknown_, FindUnknown(vocabulary, unknown));
  model->vocabulary_ = std::move(vocabulary);
  return model;
}

bool WholeWords::Encode(absl::string_view word, Encoding* encoding) const {
  const int32_t id = vocabulary_.Find(word);
  return id >= 0 ? encoding->ids.Add(id) : AddUnknown(word, unknown_, encoding);
}

}  // namespace feedwater::server
