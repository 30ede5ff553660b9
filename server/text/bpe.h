// Byte pair encoding: a word begins as its bytes (GPT-2, RoBERTa, Llama 3) or its characters (Llama
// 2, Gemma), and the pair that was learnt first is put together, again and again. O(n log n) of a
// word's bytes.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/text/json_vocabulary.h"
#include "server/text/vocabulary.h"
#include "server/text/word_model.h"

namespace feedwater::server {

// A token as files write it (each byte is a printable character of its own: 'Ġ' is a space) to its
// bytes. False: it is not written so.
bool FromByteAlphabet(absl::string_view token, std::string* bytes);

struct BpeRules {
  bool is_byte_level = true;
  bool ignore_merges = false;  // a word that is a token is that token, whatever merges lead to
  // Of characters that are no tokens; bytes all have one.
  bool byte_fallback = false;  // they become tokens of bytes, where each byte has one
  std::string unknown;         // else this token; "": they are left out
  bool fuses_unknown = false;  // and several that follow each other one
};

class Bpe : public WordModel {
 public:
  // Both as files write them. InvalidArgument names the entry.
  static absl::StatusOr<std::unique_ptr<Bpe>> Create(Vocabulary written, const MergeList& merges,
                                                     const BpeRules& rules);

  bool Encode(absl::string_view word, Encoding* encoding) const override;
  int32_t Find(absl::string_view token) const override;  // as files write it
  int32_t max_id() const override { return max_id_; }
  int64_t ScratchBytes(int64_t bytes, int64_t characters) const override;

 private:
  struct Merge {
    int32_t rank, id;
  };
  struct Symbol {
    int32_t id, before, after;
  };
  static uint64_t PairKey(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  absl::Status AddBytes(const Vocabulary& written);
  absl::Status AddCharacters(Vocabulary written, const BpeRules& rules);
  // A token's text, from how files write it. False: it is not written so.
  bool TextOf(absl::string_view token, std::string* text) const;
  absl::Status AddMerges(const MergeList& merges);
  // Which tokens a word of their text becomes: found at once later.
  void FindWholeWords(bool ignore_merges);
  // Gives `put` the ids that the word begins as, one after the other, until it returns false.
  template <typename Put>
  bool Begin(absl::string_view word, Put put) const;
  // Ids of the word, in `symbols` from 0 on by `after`; at first their ids alone are there. False:
  // Encoding says why.
  bool MergeAll(Symbol* symbols, int32_t size, uint64_t* heap, Encoding* encoding) const;

  Vocabulary tokens_;           // their text
  std::vector<bool> is_whole_;  // by id: a word of the token's text is that token
  bool is_byte_level_ = true, fuses_unknown_ = false;
  std::array<int32_t, 256> single_ids_{};  // of one byte; -1: it is no token
  std::array<int32_t, 256> byte_ids_{};    // that bytes fall back to; -1: it has no token
  int32_t unknown_ = -1;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  int32_t max_id_ = -1;
};

}  // namespace feedwater::server
