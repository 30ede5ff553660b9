// The text of a tokenizer.json, read in one pass: its vocabulary and merges, which are long, into
// what they are needed as, and the rest as a document.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/text/vocabulary.h"

namespace feedwater::server {

// Pairs of texts.
class MergeList {
 public:
  void Add(absl::string_view first, absl::string_view second);
  size_t size() const { return pairs_.size(); }
  absl::string_view first(size_t i) const;
  absl::string_view second(size_t i) const;

 private:
  struct Pair {
    uint32_t offset, first_bytes, second_bytes;
  };
  std::string texts_;
  std::vector<Pair> pairs_;
};

struct JsonVocabulary {
  Vocabulary vocabulary;       // model.vocab, not finished
  bool is_list = false;        // it is a list of [token, score], as Unigram's, with ids from 0 on
  std::vector<double> scores;  // of its entries
  MergeList merges;            // model.merges
  nlohmann::json rest;         // everything else; both are null there
};

// InvalidArgument: no JSON (with its line), too deep, too large, or one of the two is no such list.
absl::StatusOr<JsonVocabulary> ReadJsonVocabulary(absl::string_view text);

// A JSON number with a point, an exponent or many digits as serde_json reads it, which tokenizers
// uses: where there are many digits, the last bit may be another than of the nearest number. Sums
// of scores that are equal, or not, depend on it.
double NumberOfSerde(absl::string_view text);

}  // namespace feedwater::server
