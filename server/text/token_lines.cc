#include "server/text/token_lines.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/text/unicode.h"
#include "server/text/word_piece.h"
#include "server/text/word_tokenizer.h"

namespace feedwater::server {
namespace {

constexpr int64_t kBertWordCharacters = 100;

absl::StatusOr<Vocabulary> ReadLines(absl::string_view text) {
  Vocabulary vocabulary;
  if (text.substr(0, 3) == "\xef\xbb\xbf") {
    return absl::InvalidArgumentError(
        "line 1 begins with a byte order mark, which would be part of its token; cure: save it "
        "without one");
  }
  vocabulary.Reserve(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1,
                     text.size());
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    absl::string_view token = text.substr(0, end);
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
    if (!token.empty() && token.back() == '\r') token.remove_suffix(1);
    if (token.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line,
                       " is empty: a token stands in each line, and its id is the line's number "
                       "less one"));
    }
    if (FirstBadUtf8(token) != absl::string_view::npos)
      return absl::InvalidArgumentError(absl::StrCat("line ", line, " is not UTF-8"));
    FW_RETURN_IF_ERROR(vocabulary.Add(token, line - 1, line));
  }
  if (vocabulary.size() == 0) return absl::InvalidArgumentError("it has no line");
  FW_RETURN_IF_ERROR(vocabulary.Finish());
  return vocabulary;
}

absl::StatusOr<int32_t> Needed(const Vocabulary& vocabulary, const char* token) {
  const int32_t id = vocabulary.Find(token);
  if (id >= 0) return id;
  return absl::InvalidArgumentError(absl::StrCat("it has no token ", token,
                                                 ", which BERT puts around a text; cure: the whole "
                                                 "vocab.txt of the model, or its tokenizer.json"));
}

absl::Status AddBert(const Vocabulary& vocabulary, const LineRules& rules,
                     WordTokenizer::Parts* parts) {
  using Kind = NormalizerStep::Kind;
  parts->normalizer = {{Kind::kClean}, {Kind::kSeparateIdeographs}};
  if (rules.lowercase) {
    for (const Kind kind : {Kind::kNfd, Kind::kDropNonspacingMarks, Kind::kLower})
      parts->normalizer.push_back({kind});
  }
  parts->splitter = {{SplitStep::Kind::kDropWhiteSpace}, {SplitStep::Kind::kIsolatePunctuation}};
  for (const char* token : {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}) {
    const int32_t id = vocabulary.Find(token);
    if (id < 0) continue;
    FW_RETURN_IF_ERROR(parts->added.Add({token, id}));
    parts->added_ids.emplace_back(token, id);
  }
  FW_ASSIGN_OR_RETURN(const int32_t before, Needed(vocabulary, "[CLS]"));
  FW_ASSIGN_OR_RETURN(const int32_t after, Needed(vocabulary, "[SEP]"));
  parts->before = {before};
  parts->after = {after};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> MakeTokenizerOfLines(absl::string_view text,
                                                                      VocabularyKind kind,
                                                                      const LineRules& rules) {
  FW_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadLines(text));
  WordTokenizer::Parts parts;
  if (kind == VocabularyKind::kWordPiece) {
    FW_RETURN_IF_ERROR(AddBert(vocabulary, rules, &parts));
    FW_ASSIGN_OR_RETURN(parts.model, WordPiece::Create(std::move(vocabulary), /*unknown=*/"", "##",
                                                       kBertWordCharacters));
  } else {
    parts.splitter = {{SplitStep::Kind::kDropWhiteSpace}};
    FW_ASSIGN_OR_RETURN(parts.model, WholeWords::Create(std::move(vocabulary), /*unknown=*/""));
  }
  return WordTokenizer::Create(std::move(parts));
}

}  // namespace feedwater::server
