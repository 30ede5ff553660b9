#include "server/text/splitter.h"

#include <cstring>
#include <utility>

#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

bool IsOfClass(SplitStep::Kind kind, int32_t c) {
  switch (kind) {
    case SplitStep::Kind::kDropWhiteSpace:
      return IsWhiteSpace(c);
    case SplitStep::Kind::kIsolatePunctuation:
      return IsPunctuation(c);
    default:
      return IsNumeric(c);
  }
}

}  // namespace

Splitter::Splitter(std::vector<SplitStep> steps) : steps_(std::move(steps)) {
  for (const SplitStep& step : steps_) {
    has_patterns_ |= step.pattern != nullptr;
    adds_space_ |= step.kind == SplitStep::Kind::kPrefixSpace;
  }
}

bool Splitter::Run(absl::string_view text, const WordModel& model, PatternMatcher* matcher,
                   Encoding* encoding) const {
  return Step(0, text, {model, matcher, encoding});
}

bool Splitter::Step(size_t step, absl::string_view text, const Context& context) const {
  if (text.empty()) return true;
  if (step == steps_.size()) {
    return context.encoding->InTime() && context.model.Encode(text, context.encoding);
  }
  switch (steps_[step].kind) {
    case SplitStep::Kind::kPrefixSpace: {
      if (text[0] == ' ') return Step(step + 1, text, context);
      const ScratchFrame frame(&context.encoding->scratch);
      auto* const longer = context.encoding->scratch.Take<char>(text.size() + 1);
      if (longer == nullptr) return context.encoding->NoRoom();
      longer[0] = ' ';
      std::memcpy(longer + 1, text.data(), text.size());
      return Step(step + 1, {longer, text.size() + 1}, context);
    }
    case SplitStep::Kind::kIsolateMatches:
    case SplitStep::Kind::kDropMatches:
    case SplitStep::Kind::kKeepMatches:
      return ByPattern(step, text, context);
    default:
      return ByClass(step, text, context);
  }
}

bool Splitter::ByClass(size_t step, absl::string_view text, const Context& context) const {
  const SplitStep::Kind kind = steps_[step].kind;
  const auto next = [&](size_t begin, size_t end) {
    return Step(step + 1, text.substr(begin, end - begin), context);
  };
  size_t begin = 0;           // of what is not split off yet
  bool was_of_class = false;  // what begins there; kGroupDigits
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    const bool is_of_class = IsOfClass(kind, NextCharacter(text, &at));
    if (kind == SplitStep::Kind::kGroupDigits) {
      if (from > begin && is_of_class != was_of_class) {
        if (!next(begin, from)) return false;
        begin = from;
      }
      was_of_class = is_of_class;
      continue;
    }
    if (!is_of_class) continue;
    if (!next(begin, from)) return false;
    begin = at;
    if (kind != SplitStep::Kind::kDropWhiteSpace && !next(from, at)) return false;
  }
  return next(begin, text.size());
}

bool Splitter::ByPattern(size_t step, absl::string_view text, const Context& context) const {
  const SplitStep& split = steps_[step];
  const auto next = [&](size_t begin, size_t end) {
    return Step(step + 1, text.substr(begin, end - begin), context);
  };
  const bool keeps_rest = split.kind != SplitStep::Kind::kKeepMatches,
             keeps_matches = split.kind != SplitStep::Kind::kDropMatches;
  size_t from = 0, begin = 0, end = 0;
  while (from < text.size() &&
         context.matcher->Find(*split.pattern, text, from, context.encoding, &begin, &end)) {
    if (keeps_rest && !next(from, begin)) return false;
    if (keeps_matches && !next(begin, end)) return false;
    from = end;
    if (!context.encoding->InTime()) return false;
  }
  if (!context.encoding->status.ok()) return false;
  return !keeps_rest || next(from, text.size());
}

}  // namespace feedwater::server
