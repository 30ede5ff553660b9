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
    // Each ' ' becomes the pattern's string; and that stands before a word ...
    kSpaces,                 // ... never
    kPrefixWords,            // ... that does not begin with it
    kPrefixFirst,            // ... that does not, and comes from the begin of the whole text
    kIsolateMatches,         // matches and what is between them
    kDropMatches,            // what is between matches
    kKeepMatches,            // matches alone
    kJoinMatchesToNext,      // what is between matches, with the match before it
    kJoinMatchesToPrevious,  // what is between matches, with the match behind it
  };
  Kind kind;
  std::shared_ptr<const Pattern> pattern = nullptr;  // from kSpaces on
};

inline constexpr size_t kMostSplitSteps = 16;

class Splitter {
 public:
  // REQUIRES: at most kMostSplitSteps.
  explicit Splitter(std::vector<SplitStep> steps = {});
  // Gives each word to the model. `matcher`: null where there are no expressions. `origin`: how
  // many bytes of the text, at its begin, come from the first character of the whole text.
  bool Run(absl::string_view text, size_t origin, const WordModel& model, PatternMatcher* matcher,
           Encoding* encoding) const;
  bool has_expressions() const { return has_expressions_; }
  // What Run takes for a text of so many bytes, beside the matcher and the model.
  int64_t ScratchBytes(int64_t text_bytes) const;
  // How many times longer strings for ' ' make a text, at most.
  int64_t growth() const { return growth_; }

 private:
  struct Context {
    const WordModel& model;
    PatternMatcher* matcher;
    Encoding* encoding;
  };
  struct Word {
    absl::string_view text;
    size_t origin;
    Word Part(size_t begin, size_t end) const {
      return {text.substr(begin, end - begin), origin - (origin < begin ? origin : begin)};
    }
  };
  bool Step(size_t step, const Word& word, const Context& context) const;
  bool WriteSpaces(size_t step, const Word& word, const Context& context) const;
  bool ByClass(size_t step, const Word& word, const Context& context) const;
  bool ByPattern(size_t step, const Word& word, const Context& context) const;

  const std::vector<SplitStep> steps_;
  bool has_expressions_ = false;
  int64_t spaces_ = 0, growth_ = 1;  // steps that write them; what the longest makes of a byte
};

}  // namespace feedwater::server
