// What happens to a text before it is split: the normalizers of a tokenizer.json that are read.
// Immutable once made; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/text/character_map.h"
#include "server/text/encoding.h"

namespace feedwater::server {

struct NormalizerStep {
  enum class Kind {
    kClean,               // controls go, white space becomes ' '
    kSeparateIdeographs,  // ' ' on both sides of each
    kNfd,
    kNfc,
    kNfkd,
    kNfkc,
    kDropNonspacingMarks,
    kDropMarks,
    kLower,
    kStripLeft,      // white space
    kStripRight,     // white space
    kPrepend,        // `to`, before a text that is not empty
    kReplace,        // each `from` by `to`
    kReplaceRuns,    // each run of two and more of the one character of `from` by `to`
    kMapCharacters,  // by `map`, as Precompiled does it
  };
  Kind kind;
  std::vector<int32_t> from = {}, to = {};
  std::shared_ptr<const CharacterMap> map = nullptr;
};

class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {});
  bool is_empty() const { return steps_.empty(); }
  // `out` lies in the encoding's scratch, or is `text`. `origin`: how many bytes of it, at its
  // begin, come from where `origin` is before of `text`. As tokenizers reckons it, but for NFC,
  // NFD, NFKC and NFKD, behind which it is only known whether it is zero.
  bool Run(absl::string_view text, Encoding* encoding, absl::string_view* out,
           size_t* origin) const;
  // How many times longer a text becomes by strings that are replaced, at most; no more than 4 is
  // reckoned with. And by how many bytes by what is put before it.
  int64_t growth() const { return growth_; }
  int64_t prepended_bytes() const { return prepended_bytes_; }

 private:
  const std::vector<NormalizerStep> steps_;
  int64_t growth_ = 1, prepended_bytes_ = 0;
};

}  // namespace feedwater::server
