#include "server/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr uint32_t kHeapKiB = 128;  // of one match
constexpr uint32_t kMostSteps = 20'000'000;
constexpr size_t kWindowBytes = 64 << 10;  // of a search for a string, between looks at the clock

// As files write them. Each matches at every place of every text, and no place is looked at from
// more than a fixed number of matches. Oniguruma and PCRE2 read them alike, but for \s and \S.
struct Known {
  const char* name;
  const char* expression;
};
constexpr Known kGpt2 = {
    "GPT-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};
constexpr Known kKnown[] = {
    kGpt2,
    {"cl100k and Llama 3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"Qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};
// What it does not match, white space, is passed over once.
constexpr char kWordOrRest[] = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
                               R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

absl::StatusOr<std::shared_ptr<const Pattern>> Compile(absl::string_view written,
                                                       uint32_t options) {
  const std::string expression =
      absl::StrReplaceAll(written, {{"\\s", "\\p{White_Space}"}, {"\\S", "\\P{White_Space}"}});
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | options, &error, &at, context.get());
  if (code != nullptr) return std::make_shared<const Pattern>(code, "");
  return absl::InternalError(absl::StrCat("PCRE2 error ", error, " for '", expression, "'"));
}

void* TakeFrom(PCRE2_SIZE bytes, void* scratch) {
  return static_cast<TextScratch*>(scratch)->TakeBytes(bytes);
}
void GiveBack(void* /*memory*/, void* /*scratch*/) {}  // all at once, with the matcher

}  // namespace

absl::StatusOr<std::shared_ptr<const Pattern>> Pattern::Create(absl::string_view expression) {
  for (const Known& known : kKnown) {
    // It never has to look for a place to begin at.
    if (expression == known.expression) return Compile(known.expression, PCRE2_ANCHORED);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the regular expression '", Printable(expression), "' is not done here; those of ",
      absl::StrJoin(kKnown, ", ",
                    [](std::string* out, const Known& known) { out->append(known.name); }),
      " are, as their files write them. Cure: a tokenizer with one of them, or ids that are made "
      "before: `format: tokens`"));
}

absl::StatusOr<std::shared_ptr<const Pattern>> Pattern::Gpt2() { return Create(kGpt2.expression); }

absl::StatusOr<std::shared_ptr<const Pattern>> Pattern::WordOrRest() {
  return Compile(kWordOrRest, 0);
}

absl::StatusOr<std::shared_ptr<const Pattern>> Pattern::OfString(absl::string_view text) {
  if (!text.empty() && text.size() <= kMostStringBytes)
    return std::make_shared<const Pattern>(nullptr, std::string(text));
  return absl::InvalidArgumentError(absl::StrCat("a string to split at has ", text.size(),
                                                 " bytes; from 1 to ", kMostStringBytes,
                                                 " are read"));
}

Pattern::~Pattern() { pcre2_code_free(code_); }

bool FindString(absl::string_view wanted, absl::string_view text, size_t from, Encoding* encoding,
                size_t* begin, size_t* end) {
  for (; from < text.size() && encoding->InTime(); from += kWindowBytes) {
    const size_t at = text.substr(from, kWindowBytes + wanted.size() - 1).find(wanted);
    if (at == absl::string_view::npos) continue;
    *begin = from + at;
    *end = *begin + wanted.size();
    return true;
  }
  return false;
}

PatternMatcher::PatternMatcher(TextScratch* scratch) {
  auto* const memory = static_cast<std::byte*>(scratch->TakeBytes(kMatcherBytes));
  if (memory == nullptr) return;
  own_.emplace(memory, kMatcherBytes);
  pcre2_general_context* const general = pcre2_general_context_create(TakeFrom, GiveBack, &*own_);
  if (general == nullptr) return;
  context_ = pcre2_match_context_create(general);
  data_ = pcre2_match_data_create(1, general);
  if (context_ == nullptr) return;
  pcre2_set_match_limit(context_, kMostSteps);
  pcre2_set_heap_limit(context_, kHeapKiB);
}

bool PatternMatcher::Find(const Pattern& pattern, absl::string_view text, size_t from,
                          Encoding* encoding, size_t* begin, size_t* end) {
  if (context_ == nullptr || data_ == nullptr) return encoding->NoRoom();
  const int found = pcre2_match(pattern.code(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), from, PCRE2_NO_UTF_CHECK, data_, context_);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    return encoding->Fail(absl::InvalidArgumentError(
        absl::StrCat("a regular expression of the tokenizer needs too many steps or too much "
                     "memory for this text (PCRE2 error ",
                     found, ")")));
  }
  const PCRE2_SIZE* const at = pcre2_get_ovector_pointer(data_);
  *begin = at[0];
  *end = at[1];
  if (*begin >= from && *end > *begin && *end <= text.size()) return true;
  return encoding->Fail(absl::InvalidArgumentError("a regular expression matches nothing"));
}

}  // namespace feedwater::server
