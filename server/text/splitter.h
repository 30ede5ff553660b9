// How a normalized text is split into words: the pre-tokenizers of a tokenizer.json that are read,
// as steps, each of which splits what the one before has left. Immutable once made; thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/text/encoding.h"
#include "server/text/pattern.h"
#include "server/text/word_model.h"

namespace feedwater::server {

struct SplitStep {
  enum class Kind {
    kDropWhiteSpace,      // and split there
    kIsolatePunctuation,  // each character
    kIsolateDigits,       // each character
    kGroupDigits,         // as many as follow each other
    kPrefixSpace,         // before a text that does not begin with one
    kIsolateMatches,      // matches and what is between them
    kDropMatches,         // what is between matches
    kKeepMatches,         // matches alone
  };
  Kind kind;
  std::shared_ptr<const Pattern> pattern = nullptr;  // of the last three
};

inline constexpr size_t kMostSplitSteps = 16;

class Splitter {
 public:
  // REQUIRES: at most kMostSplitSteps.
  explicit Splitter(std::vector<SplitStep> steps = {});
  // Gives each word to the model.
  bool Run(absl::string_view text, const WordModel& model, PatternMatcher* matcher,
           Encoding* encoding) const;
  bool has_patterns() const { return has_patterns_; }
  bool adds_space() const { return adds_space_; }

 private:
  struct Context {
    const WordModel& model;
    PatternMatcher* matcher;
    Encoding* encoding;
  };
  bool Step(size_t step, absl::string_view text, const Context& context) const;
  bool ByClass(size_t step, absl::string_view text, const Context& context) const;
  bool ByPattern(size_t step, absl::string_view text, const Context& context) const;

  const std::vector<SplitStep> steps_;
  bool has_patterns_ = false, adds_space_ = false;
};

}  // namespace feedwater::server
