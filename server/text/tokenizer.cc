#include "server/text/tokenizer.h"

#include "absl/strings/ascii.h"
#include "server/text/sentence_piece.h"
#include "server/text/token_lines.h"
#include "server/text/tokenizer_json.h"

namespace feedwater::server {

absl::string_view VocabularyKindName(VocabularyKind kind) {
  switch (kind) {
    case VocabularyKind::kTokenizerJson:
      return "tokenizer_json";
    case VocabularyKind::kSentencePiece:
      return "sentencepiece";
    case VocabularyKind::kWordPiece:
      return "wordpiece";
    case VocabularyKind::kWords:
      return "words";
  }
  return "";
}

std::optional<VocabularyKind> KindOfVocabulary(absl::string_view bytes) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(bytes);
  if (!text.empty() && text[0] == '{') return VocabularyKind::kTokenizerJson;
  // The first field of a model is its first piece: field 1, a message. No text begins like that.
  if (bytes.size() > 4 && bytes[0] == '\n' && bytes[2] == '\n')
    return VocabularyKind::kSentencePiece;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> MakeTokenizer(absl::string_view bytes,
                                                               VocabularyKind kind,
                                                               const LineRules& rules) {
  if (static_cast<int64_t>(bytes.size()) > kMostVocabularyBytes)
    return absl::InvalidArgumentError("it is too large");
  switch (kind) {
    case VocabularyKind::kTokenizerJson:
      return MakeTokenizerOfJson(bytes);
    case VocabularyKind::kWordPiece:
    case VocabularyKind::kWords:
      return MakeTokenizerOfLines(bytes, kind, rules);
    case VocabularyKind::kSentencePiece:
      return SentencePiece::Create(bytes);
  }
  return absl::InternalError("a vocabulary of no kind");
}

}  // namespace feedwater::server
