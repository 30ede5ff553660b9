// A tokenizer in four stages, as a tokenizer.json describes one: added tokens are found, what is
// between them is normalized, split into words, and each word is turned into ids by a model.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/text/added_tokens.h"
#include "server/text/normalizer.h"
#include "server/text/splitter.h"
#include "server/text/tokenizer.h"
#include "server/text/word_model.h"

namespace feedwater::server {

class WordTokenizer : public Tokenizer {
 public:
  struct Parts {
    AddedTokens added;             // found in the text as it is
    AddedTokens added_afterwards;  // found in what is between those, once normalized
    std::vector<NormalizerStep> normalizer;
    std::vector<SplitStep> splitter;
    std::unique_ptr<const WordModel> model;
    std::vector<std::pair<std::string, int32_t>> added_ids;  // of all added tokens
    std::vector<int32_t> before, after;
  };
  // InvalidArgument: an added token stands there twice.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(Parts parts);
  explicit WordTokenizer(Parts parts);  // REQUIRES: its added tokens are finished

  bool Encode(absl::string_view text, Encoding* encoding) const override;
  int64_t ScratchBytes(int64_t text_bytes) const override;
  int32_t Find(absl::string_view token) const override;
  int32_t max_id() const override { return max_id_; }

 private:
  const AddedTokens added_, added_afterwards_;
  const Normalizer normalizer_;
  const Splitter splitter_;
  const std::unique_ptr<const WordModel> model_;
  absl::flat_hash_map<std::string, int32_t> added_ids_;
  int32_t max_id_ = -1;
};

}  // namespace feedwater::server
