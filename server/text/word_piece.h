// WordPiece, as of BERT: the longest token that a word begins with, then the longest that goes on.
// And whole words alone: a word is a token, or unknown.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/vocabulary.h"
#include "server/text/word_model.h"

namespace feedwater::server {

inline constexpr int64_t kMostWordCharacters = 1000;

class WordPiece : public WordModel {
 public:
  // `unknown`: the token of words that are none; "": Encoding::unknown is. `continuing`: what
  // stands before a token that goes on with a word ("##"). InvalidArgument: the vocabulary lacks
  // `unknown`, or the number of characters is over kMostWordCharacters.
  static absl::StatusOr<std::unique_ptr<WordPiece>> Create(Vocabulary vocabulary,
                                                           const std::string& unknown,
                                                           const std::string& continuing,
                                                           int64_t max_word_characters);

  bool Encode(absl::string_view word, Encoding* encoding) const override;
  int32_t Find(absl::string_view token) const override { return vocabulary_.Find(token); }
  int32_t max_id() const override { return vocabulary_.max_id(); }
  int64_t ScratchBytes(int64_t /*bytes*/, int64_t /*characters*/) const override { return 0; }

 private:
  Vocabulary vocabulary_;
  Vocabulary continuing_;  // without what stands before them
  int32_t unknown_ = -1;
  int64_t max_word_characters_ = 0;
};

class WholeWords : public WordModel {
 public:
  // As WordPiece's.
  static absl::StatusOr<std::unique_ptr<WholeWords>> Create(Vocabulary vocabulary,
                                                            const std::string& unknown);

  bool Encode(absl::string_view word, Encoding* encoding) const override;
  int32_t Find(absl::string_view token) const override { return vocabulary_.Find(token); }
  int32_t max_id() const override { return vocabulary_.max_id(); }
  int64_t ScratchBytes(int64_t /*bytes*/, int64_t /*characters*/) const override { return 0; }

 private:
  Vocabulary vocabulary_;
  int32_t unknown_ = -1;
};

}  // namespace feedwater::server
