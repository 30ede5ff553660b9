// Tokens and their ids. Made once, then read by all threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

// Ids are from 0 to below this, and so many tokens there are at most.
inline constexpr int64_t kMostTokens = 1 << 24;
// Ids are below twice the number of tokens and this.
inline constexpr int64_t kMostSpareIds = 65536;

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // How many tokens there will be, and how many bytes they have, at most.
  void Reserve(size_t tokens, size_t bytes);
  // `at_line`: of the file, for messages; 0: it has none. InvalidArgument: the id is out of range.
  absl::Status Add(absl::string_view token, int64_t id, int64_t at_line = 0);
  // To be called once all are there. InvalidArgument: a token or an id stands there twice, or an id
  // is far beyond the number of tokens.
  absl::Status Finish();

  // REQUIRES: finished.
  int32_t Find(absl::string_view token) const;  // -1: there is no such token
  bool has_id(int32_t id) const;                // of a token
  size_t size() const { return tokens_.size(); }
  int32_t max_id() const { return max_id_; }
  size_t max_token_bytes() const { return max_token_bytes_; }
  absl::string_view token(size_t i) const;  // in the order of Add
  int32_t id(size_t i) const { return tokens_[i].id; }

 private:
  struct Token {
    uint32_t offset, bytes;
    int32_t id;
    uint32_t line;
  };
  static std::string PlaceOf(const Token& token);

  static constexpr uint32_t kFree = 0xffffffff, kNumber = kMostTokens - 1;
  // Where the token stands in places_, or the free place where it would. REQUIRES: Finish has made
  // them.
  size_t PlaceFor(absl::string_view token, size_t hash) const;

  std::string texts_;  // one after the other
  std::vector<Token> tokens_;
  // A hash table, as lean as can be, since files may have tokens of three bytes: each place is
  // free, or has a token's number and 7 bits of its hash. A power of two, at most half of which are
  // taken.
  std::vector<uint32_t> places_;
  std::vector<bool> has_id_;
  int32_t max_id_ = -1;
  size_t max_token_bytes_ = 0;
};

// The token that stands for a byte where text has no other: "<0x0A>".
std::string ByteToken(int64_t byte);
// Their ids; -1: there is none.
std::array<int32_t, 256> ByteTokens(const Vocabulary& vocabulary);

}  // namespace feedwater::server
