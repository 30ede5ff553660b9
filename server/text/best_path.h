// The best path through the pieces of a text (Viterbi), which is what Unigram is: SentencePiece's
// own in sums of 32-bit floats, that of tokenizers in 64-bit ones. O(n * longest piece).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/escape.h"
#include "server/text/byte_trie.h"
#include "server/text/encoding.h"

namespace feedwater::server {

// Pieces may cut characters: a byte then stands alone.
inline size_t CharacterBytes(absl::string_view text) {
  return std::max<size_t>(1, Utf8Length(text));
}

// What is kept for each byte of a text, and one more.
template <typename Score>
struct BestStep {
  Score score;
  int32_t id, starts_at;
};

template <typename Score>
struct UnknownPiece {
  int32_t id;  // -1: a text that needs one is refused
  Score score;
};

// Gives each piece of the path and its id to `use`, until that returns false. `score_of`: of a
// piece's id and bytes. `most_score` of a path: beyond it, scores count from there.
template <typename Score, typename ScoreOf, typename Use>
bool WalkBestPath(absl::string_view text, const ByteTrie& pieces, UnknownPiece<Score> unknown,
                  Score most_score, Encoding* encoding, ScoreOf score_of, Use use) {
  constexpr size_t kPlacesPerLook = 64;
  auto* const best = encoding->scratch.Take<BestStep<Score>>(text.size() + 1);
  if (best == nullptr || text.size() > INT32_MAX) return encoding->NoRoom();
  std::fill(best, best + text.size() + 1, BestStep<Score>{0, -1, -1});
  size_t looks = 0, reached = 0;  // the last place that a path ends at
  for (size_t start = 0; start < text.size();) {
    if (++looks % kPlacesPerLook == 0 && !encoding->InTime()) return false;
    if (const Score offset = best[start].score; std::abs(offset) > most_score) {
      for (size_t i = start; i <= reached; ++i) best[i].score -= offset;
    }
    const Score so_far = best[start].score;
    const size_t character = CharacterBytes(text.substr(start));
    bool has_character = false;
    const auto offer = [&](size_t end, int32_t id, Score piece_score) {
      const Score score = piece_score + so_far;
      BestStep<Score>& target = best[end];
      reached = std::max(reached, end);
      if (target.starts_at >= 0 && !(score > target.score)) return false;
      target = {score, id, static_cast<int32_t>(start)};
      return true;
    };
    uint32_t node = ByteTrie::kRoot;
    for (size_t at = start; at < text.size() && pieces.Step(&node, text[at]); ++at) {
      const int32_t id = pieces.value(node);
      if (id < 0) continue;
      const size_t length = at + 1 - start;
      offer(at + 1, id, score_of(id, length));
      has_character |= length == character;
    }
    if (!has_character && offer(start + character, unknown.id, unknown.score) && unknown.id < 0) {
      return encoding->Fail(absl::InvalidArgumentError(
          "the text has a character that is in no token, and the tokenizer no token for such"));
    }
    start += character;
  }
  // Backwards; the path is then written into the places it has been through.
  int32_t next = -1;
  for (auto end = static_cast<int32_t>(text.size()); end > 0;) {
    const int32_t start = best[end].starts_at;
    if (start < 0) return encoding->Fail(absl::InternalError("a text without a path"));
    best[end].starts_at = next;
    next = end;
    end = start;
  }
  for (int32_t begin = 0, end = next; end >= 0;) {
    if (!use(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
             best[end].id))
      return false;
    begin = end;
    end = best[end].starts_at;
  }
  return true;
}

}  // namespace feedwater::server
