// Tokens that are looked for in a text before anything else is done to it, such as <|endoftext|>.
// Of two that begin at one place the longer one counts. Immutable once made; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/text/byte_trie.h"
#include "server/text/encoding.h"

namespace feedwater::server {

// Where the white space that `text` ends with begins, and where the one that it begins with ends.
size_t EndOfWords(absl::string_view text);
size_t LeadingSpaces(absl::string_view text);

class AddedTokens {
 public:
  struct Token {
    std::string content;
    int32_t id = 0;
    // White space on that side belongs to the token.
    bool takes_left = false, takes_right = false;
  };
  static constexpr size_t kMostTokenBytes = 256;

  // InvalidArgument: empty, or too long.
  absl::Status Add(Token token);
  // To be called once all are there. InvalidArgument: one stands there twice.
  absl::Status Finish();
  bool is_empty() const { return tokens_.empty(); }

  // The first one in text[from..]. False: there is none, or the encoding's status says why not.
  struct Found {
    size_t begin, end;
    const Token* token;
  };
  bool Find(absl::string_view text, size_t from, Encoding* encoding, Found* found) const;

 private:
  std::vector<Token> tokens_;
  ByteTrie trie_;                   // their places in tokens_
  std::array<bool, 256> begins_{};  // whether a token begins with the byte
};

}  // namespace feedwater::server
