// Unigram as Hugging Face's tokenizers does it: of all ways to put a word together from tokens, the
// one whose scores add up to the most. O(n * longest token) of a word's bytes.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/byte_trie.h"
#include "server/text/vocabulary.h"
#include "server/text/word_model.h"

namespace feedwater::server {

class Unigram : public WordModel {
 public:
  // `vocabulary`: finished, with ids from 0 on; `scores` by id. `unknown`: -1: a word with unknown
  // characters is refused. `byte_fallback`: they become tokens of bytes, where each byte has one.
  // InvalidArgument: a token is too long.
  static absl::StatusOr<std::unique_ptr<Unigram>> Create(Vocabulary vocabulary,
                                                         std::vector<double> scores,
                                                         int32_t unknown, bool byte_fallback);

  bool Encode(absl::string_view word, Encoding* encoding) const override;
  int32_t Find(absl::string_view token) const override { return vocabulary_.Find(token); }
  int32_t max_id() const override { return vocabulary_.max_id(); }
  int64_t ScratchBytes(int64_t bytes, int64_t characters) const override;

 private:
  // The ids of unknown characters that follow each other.
  bool AddUnknown(absl::string_view run, Encoding* encoding) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  ByteTrie pieces_;
  std::array<int32_t, 256> byte_ids_{};  // -1: the byte has no token
  int32_t unknown_ = -1;
  double unknown_score_ = 0;
};

}  // namespace feedwater::server
