#include "server/text/added_tokens.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/yaml.h"
#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

constexpr size_t kLooksEvery = 64;  // places between two looks at the clock

}  // namespace

size_t EndOfWords(absl::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    size_t at = begin;
    if (!IsWhiteSpace(NextCharacter(text, &at))) break;
    end = begin;
  }
  return end;
}

size_t LeadingSpaces(absl::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    size_t at = end;
    if (!IsWhiteSpace(NextCharacter(text, &at))) break;
    end = at;
  }
  return end;
}

absl::Status AddedTokens::Add(Token token) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("added_tokens: '", Printable(token.content), "' ", why));
  };
  if (token.content.empty() || token.content.size() > kMostTokenBytes)
    return wrong(absl::StrCat("has ", token.content.size(), " bytes; from 1 to ", kMostTokenBytes,
                              " are read"));
  if (FirstBadUtf8(token.content) != absl::string_view::npos) return wrong("is not UTF-8");
  if ((token.takes_left || token.takes_right) &&
      (LeadingSpaces(token.content) > 0 || EndOfWords(token.content) < token.content.size())) {
    return wrong("has lstrip or rstrip and white space of its own, which is not read");
  }
  begins_[static_cast<unsigned char>(token.content[0])] = true;
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status AddedTokens::Finish() {
  std::vector<ByteTrie::Key> keys;
  keys.reserve(tokens_.size());
  for (const Token& token : tokens_)
    keys.push_back({token.content, static_cast<int32_t>(keys.size())});
  ByteTrie::Key twice;
  if (trie_.Build(std::move(keys), &twice)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("added_tokens: '", Printable(twice.text), "' stands there a second time"));
}

bool AddedTokens::Find(absl::string_view text, size_t from, Encoding* encoding,
                       Found* found) const {
  if (tokens_.empty()) return false;
  size_t looks = 0;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    if (++looks % kLooksEvery == 0 && !encoding->InTime()) return false;
    size_t bytes = 0;
    const int32_t longest = trie_.LongestPrefix(text.substr(begin), &bytes);
    if (longest < 0) continue;
    *found = {begin, begin + bytes, &tokens_[static_cast<size_t>(longest)]};
    return true;
  }
  return false;
}

}  // namespace feedwater::server
