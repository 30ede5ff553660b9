#include "server/text/word_tokenizer.h"

#include <algorithm>
#include <new>

#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr int64_t kFixedBytes = 4096;
// Characters before and after a step, decomposed ones in order, and as text again. Three times as
// many bytes fit, as decomposed Hangul has.
constexpr int64_t kNormalizerBytesPerByte = 32;

// Gives the text between added tokens to `plain`, and their ids to the sink.
template <typename Plain>
bool AroundAdded(const AddedTokens& added, absl::string_view text, Encoding* encoding,
                 Plain plain) {
  AddedTokens::Found found;
  size_t from = 0;  // of what is not given yet
  // White space that a token takes is looked through for the next token nonetheless, as Hugging
  // Face does: what is found there counts, and text goes on behind it.
  size_t look_from = 0;
  while (look_from < text.size() && added.Find(text, look_from, encoding, &found)) {
    look_from = found.end;
    size_t begin = found.begin;
    if (found.token->takes_left && begin > from)
      begin = from + EndOfWords(text.substr(from, begin - from));
    if (begin > from && !plain(text.substr(from, begin - from))) return false;
    if (!encoding->ids.Add(found.token->id) || !encoding->InTime()) return false;
    from = found.end;
    if (found.token->takes_right) from += LeadingSpaces(text.substr(from));
  }
  return encoding->status.ok() && plain(text.substr(from));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> WordTokenizer::Create(Parts parts) {
  FW_RETURN_IF_ERROR(parts.added.Finish());
  FW_RETURN_IF_ERROR(parts.added_afterwards.Finish());
  return std::make_unique<const WordTokenizer>(std::move(parts));
}

WordTokenizer::WordTokenizer(Parts parts)
    : added_(std::move(parts.added)),
      added_afterwards_(std::move(parts.added_afterwards)),
      normalizer_(std::move(parts.normalizer)),
      splitter_(std::move(parts.splitter)),
      model_(std::move(parts.model)),
      added_ids_(parts.added_ids.begin(), parts.added_ids.end()) {
  before_ = std::move(parts.before);
  after_ = std::move(parts.after);
  max_id_ = model_->max_id();
  for (const auto& [content, id] : added_ids_) max_id_ = std::max(max_id_, id);
}

bool WordTokenizer::Encode(absl::string_view text, Encoding* encoding) const {
  const ScratchFrame frame(&encoding->scratch);
  PatternMatcher* matcher = nullptr;
  if (splitter_.has_expressions()) {
    void* const place = encoding->scratch.TakeBytes(sizeof(PatternMatcher));
    if (place == nullptr) return encoding->NoRoom();
    matcher = new (place) PatternMatcher(&encoding->scratch);  // owns nothing outside of scratch
  }
  return AroundAdded(added_, text, encoding, [&](absl::string_view between) {
    if (between.empty()) return true;
    const ScratchFrame normalized_frame(&encoding->scratch);
    absl::string_view normalized;
    size_t origin = between.data() == text.data() ? 1 : 0;
    if (!normalizer_.Run(between, encoding, &normalized, &origin)) return false;
    return AroundAdded(added_afterwards_, normalized, encoding, [&](absl::string_view plain) {
      const auto begins = static_cast<size_t>(plain.data() - normalized.data());
      return splitter_.Run(plain, origin - std::min(origin, begins), *model_, matcher, encoding);
    });
  });
}

int64_t WordTokenizer::ScratchBytes(int64_t text_bytes) const {
  int64_t bytes = kFixedBytes;
  if (splitter_.has_expressions())
    bytes += static_cast<int64_t>(kMatcherBytes + sizeof(PatternMatcher)) + 64;
  // What is put before words, each of which lies in scratch alone; once for a text, or where a word
  // begins at a space that goes.
  const int64_t more = normalizer_.prepended_bytes() + 4;
  if (!normalizer_.is_empty()) bytes += kNormalizerBytesPerByte * (text_bytes + more);
  const int64_t normalized = normalizer_.growth() * text_bytes + more;
  const int64_t growth = std::max(normalizer_.growth(), splitter_.growth());
  return bytes + splitter_.ScratchBytes(normalized) +
         model_->ScratchBytes(growth * text_bytes + more, text_bytes + more);
}

int32_t WordTokenizer::Find(absl::string_view token) const {
  const auto found = added_ids_.find(token);
  return found == added_ids_.end() ? model_->Find(token) : found->second;
}

}  // namespace feedwater::server
