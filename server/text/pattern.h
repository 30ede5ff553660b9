// How a tokenizer.json splits a text by matches: the regular expressions of known tokenizers,
// matched by PCRE2, and plain strings. Other expressions are refused: files are written for
// Oniguruma, which reads some differently, and one that does not match at every place may be
// searched for through the whole text again and again. A match has a bound on its steps and its
// memory, which comes from the encoding's scratch. No code is made at run time: processes in a
// sandbox could not.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/encoding.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace feedwater::server {

// That a PatternMatcher takes.
inline constexpr size_t kMatcherBytes = 384 << 10;

class Pattern {
 public:
  static constexpr size_t kMostStringBytes = 256;

  // InvalidArgument: it is none of those that are known, which the message names.
  static absl::StatusOr<std::shared_ptr<const Pattern>> Create(absl::string_view expression);
  static absl::StatusOr<std::shared_ptr<const Pattern>> Gpt2();
  // `\w+|[^\w\s]+` with Rust's \w and \s.
  static absl::StatusOr<std::shared_ptr<const Pattern>> WordOrRest();
  // The string itself. InvalidArgument: it is empty or too long.
  static absl::StatusOr<std::shared_ptr<const Pattern>> OfString(absl::string_view text);

  Pattern(pcre2_real_code_8* code, std::string text) : code_(code), text_(std::move(text)) {}
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  const pcre2_real_code_8* code() const { return code_; }  // null: it is text()
  const std::string& text() const { return text_; }

 private:
  pcre2_real_code_8* const code_;
  const std::string text_;
};

// The first place in text[from..] where `wanted` stands. False: there is none, or the encoding's
// status says why not.
bool FindString(absl::string_view wanted, absl::string_view text, size_t from, Encoding* encoding,
                size_t* begin, size_t* end);

// Finds matches of expressions, one after the other. Lives in an encoding's scratch.
class PatternMatcher {
 public:
  explicit PatternMatcher(TextScratch* scratch);
  // The first match in text[from..]. False: as FindString. REQUIRES: the pattern has code().
  bool Find(const Pattern& pattern, absl::string_view text, size_t from, Encoding* encoding,
            size_t* begin, size_t* end);

  PatternMatcher(const PatternMatcher&) = delete;  // PCRE2 knows where own_ is
  PatternMatcher& operator=(const PatternMatcher&) = delete;

 private:
  std::optional<TextScratch> own_;  // what PCRE2 asks for while it matches
  pcre2_real_match_context_8* context_ = nullptr;
  pcre2_real_match_data_8* data_ = nullptr;
};

}  // namespace feedwater::server
