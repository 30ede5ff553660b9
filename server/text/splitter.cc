#include "server/text/splitter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
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
    if (step.pattern == nullptr) continue;
    has_expressions_ |= step.pattern->code() != nullptr;
    if (step.kind > SplitStep::Kind::kPrefixFirst) continue;
    ++spaces_;
    growth_ = std::max(growth_, static_cast<int64_t>(step.pattern->text().size()));
  }
}

bool Splitter::Run(absl::string_view text, size_t origin, const WordModel& model,
                   PatternMatcher* matcher, Encoding* encoding) const {
  return Step(0, {text, origin}, {model, matcher, encoding});
}

int64_t Splitter::ScratchBytes(int64_t text_bytes) const {
  return spaces_ * ((growth_ + 1) * text_bytes + 64);
}

bool Splitter::Step(size_t step, const Word& word, const Context& context) const {
  if (word.text.empty()) return true;
  if (step == steps_.size()) {
    return context.encoding->InTime() && context.model.Encode(word.text, context.encoding);
  }
  switch (steps_[step].kind) {
    case SplitStep::Kind::kSpaces:
    case SplitStep::Kind::kPrefixWords:
    case SplitStep::Kind::kPrefixFirst:
      return WriteSpaces(step, word, context);
    case SplitStep::Kind::kIsolateMatches:
    case SplitStep::Kind::kDropMatches:
    case SplitStep::Kind::kKeepMatches:
    case SplitStep::Kind::kJoinMatchesToNext:
    case SplitStep::Kind::kJoinMatchesToPrevious:
      return ByPattern(step, word, context);
    default:
      return ByClass(step, word, context);
  }
}

bool Splitter::WriteSpaces(size_t step, const Word& word, const Context& context) const {
  const SplitStep::Kind kind = steps_[step].kind;
  const std::string& mark = steps_[step].pattern->text();
  const absl::string_view text = word.text;
  const bool begins = text[0] == ' ' || absl::StartsWith(text, mark);
  const bool prefixes = !begins && (kind == SplitStep::Kind::kPrefixWords ||
                                    (kind == SplitStep::Kind::kPrefixFirst && word.origin > 0));
  const auto longer = [&](absl::string_view part) {
    return static_cast<size_t>(std::count(part.begin(), part.end(), ' ')) * (mark.size() - 1);
  };
  if (!prefixes && (mark == " " || text.find(' ') == absl::string_view::npos))
    return Step(step + 1, word, context);
  const ScratchFrame frame(&context.encoding->scratch);
  const size_t prefix = prefixes ? mark.size() : 0, size = prefix + text.size() + longer(text);
  auto* const made = context.encoding->scratch.Take<char>(size);
  if (made == nullptr) return context.encoding->NoRoom();
  char* at = std::copy_n(mark.data(), prefix, made);
  for (const char byte : text) {
    if (byte == ' ') {
      at = std::copy(mark.begin(), mark.end(), at);
    } else {
      *at++ = byte;
    }
  }
  const size_t origin = word.origin + longer(text.substr(0, word.origin));
  return Step(step + 1, {{made, size}, origin > 0 ? prefix + origin : 0}, context);
}

bool Splitter::ByClass(size_t step, const Word& word, const Context& context) const {
  const SplitStep::Kind kind = steps_[step].kind;
  const absl::string_view text = word.text;
  const auto next = [&](size_t begin, size_t end) {
    return Step(step + 1, word.Part(begin, end), context);
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

bool Splitter::ByPattern(size_t step, const Word& word, const Context& context) const {
  using Kind = SplitStep::Kind;
  const SplitStep& split = steps_[step];
  const absl::string_view text = word.text;
  const auto next = [&](size_t begin, size_t end) {
    return Step(step + 1, word.Part(begin, end), context);
  };
  const auto find = [&](size_t from, size_t* begin, size_t* end) {
    return split.pattern->code() == nullptr
               ? FindString(split.pattern->text(), text, from, context.encoding, begin, end)
               : context.matcher->Find(*split.pattern, text, from, context.encoding, begin, end);
  };
  // `from`: of what is not given yet.
  size_t from = 0, look_from = 0, begin = 0, end = 0;
  while (look_from < text.size() && find(look_from, &begin, &end)) {
    look_from = end;
    bool goes_on = true;
    switch (split.kind) {
      case Kind::kKeepMatches:
        goes_on = next(begin, end);
        break;
      case Kind::kDropMatches:
      case Kind::kJoinMatchesToNext:
        goes_on = next(from, begin);
        break;
      case Kind::kJoinMatchesToPrevious:
        goes_on = next(from, end);
        break;
      default:
        goes_on = next(from, begin) && next(begin, end);
    }
    from = split.kind == Kind::kJoinMatchesToNext ? begin : end;
    if (!goes_on || !context.encoding->InTime()) return false;
  }
  if (!context.encoding->status.ok()) return false;
  return split.kind == Kind::kKeepMatches || next(from, text.size());
}

}  // namespace feedwater::server
