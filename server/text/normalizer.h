// What happens to a text before it is split: the normalizers of a tokenizer.json that are read.
// Immutable once made; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/text/encoding.h"

namespace feedwater::server {

enum class NormalizerStep {
  kClean,               // controls go, white space becomes ' '
  kSeparateIdeographs,  // ' ' on both sides of each
  kNfd,
  kNfc,
  kNfkd,
  kNfkc,
  kDropNonspacingMarks,
  kDropMarks,
  kLower,
};

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}
  bool is_empty() const { return steps_.empty(); }
  // `out` lies in the encoding's scratch, or is `text`.
  bool Run(absl::string_view text, Encoding* encoding, absl::string_view* out) const;

 private:
  const std::vector<NormalizerStep> steps_;
};

}  // namespace feedwater::server
