// Byte-level byte pair encoding, as of GPT-2, RoBERTa and Llama 3: a word begins as its bytes, and
// the pair that was learnt first is put together, again and again. O(n log n) of a word's bytes.
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

class Bpe : public WordModel {
 public:
  // Both as files write them. `ignore_merges`: a word that is a token is that token, whether or not
  // merges lead to it. InvalidArgument names the entry.
  static absl::StatusOr<std::unique_ptr<Bpe>> Create(const Vocabulary& written,
                                                     const MergeList& merges, bool ignore_merges);

  bool Encode(absl::string_view word, Encoding* encoding) const override;
  int32_t Find(absl::string_view token) const override;  // as files write it
  int32_t max_id() const override { return max_id_; }
  int64_t ScratchBytes(int64_t word_bytes) const override;

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
  absl::Status AddMerges(const MergeList& merges);
  // Which tokens a word of their bytes becomes: found at once later.
  void FindWholeWords(bool ignore_merges);
  // Ids of the word, in `symbols` from 0 on by `after`. False: Encoding says why.
  bool MergeAll(absl::string_view word, Symbol* symbols, uint64_t* heap, Encoding* encoding) const;

  Vocabulary bytes_;            // tokens as bytes
  std::vector<bool> is_whole_;  // by id: a word of the token's bytes is that token
  std::array<int32_t, 256> byte_ids_{};
  absl::flat_hash_map<uint64_t, Merge> merges_;
  int32_t max_id_ = -1;
};

}  // namespace feedwater::server
