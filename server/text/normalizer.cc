#include "server/text/normalizer.h"

#include <algorithm>
#include <cstring>

#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

// Characters in scratch, on top of which nothing else lies.
struct Characters {
  size_t begin = 0;  // of the scratch
  int32_t* data = nullptr;
  size_t size = 0;
};

template <typename Keep>
void Filter(Characters* text, Keep keep) {
  text->size = static_cast<size_t>(
      std::remove_if(text->data, text->data + text->size, [&](int32_t c) { return !keep(c); }) -
      text->data);
}

void Clean(Characters* text) {
  Filter(text, [](int32_t c) {
    const bool is_line = c == '\t' || c == '\n' || c == '\r';
    return c != 0 && c != 0xfffd && (is_line || !IsControl(c));
  });
  for (size_t i = 0; i < text->size; ++i) {
    if (IsWhiteSpace(text->data[i])) text->data[i] = ' ';
  }
}

// A character becomes those that `put` writes to a buffer of `most`, and says how many.
template <size_t most, typename Put>
bool Replace(Characters* text, Encoding* encoding, Put put) {
  int32_t made[most];
  size_t size = 0;
  for (size_t i = 0; i < text->size; ++i) size += put(text->data[i], made);
  auto* const data = encoding->scratch.Take<int32_t>(size);
  if (data == nullptr) return encoding->NoRoom();
  int32_t* at = data;
  for (size_t i = 0; i < text->size; ++i) {
    const size_t count = put(text->data[i], made);
    at = std::copy(made, made + count, at);
  }
  // To where they were before, so that many steps take no more room than the largest.
  std::memmove(text->data, data, size * sizeof(int32_t));
  encoding->scratch.ReleaseTo(text->begin);
  text->data = encoding->scratch.Take<int32_t>(size);
  text->size = size;
  return true;
}

bool SeparateIdeographs(Characters* text, Encoding* encoding) {
  return Replace<3>(text, encoding, [](int32_t c, int32_t* out) -> size_t {
    if (!IsIdeograph(c)) {
      out[0] = c;
      return 1;
    }
    out[0] = out[2] = ' ';
    out[1] = c;
    return 3;
  });
}

bool DecomposeAll(Characters* text, bool compatible, Encoding* encoding) {
  const bool is_done = Replace<kMostDecomposed>(
      text, encoding,
      [compatible](int32_t c, int32_t* out) { return Decompose(c, compatible, out); });
  if (!is_done || !encoding->InTime()) return false;
  const ScratchFrame frame(&encoding->scratch);
  auto* const room = encoding->scratch.Take<int32_t>(text->size);
  if (room == nullptr) return encoding->NoRoom();
  OrderMarks(text->data, text->size, room);
  return true;
}

bool Do(NormalizerStep step, Characters* text, Encoding* encoding) {
  switch (step) {
    case NormalizerStep::kClean:
      Clean(text);
      return true;
    case NormalizerStep::kSeparateIdeographs:
      return SeparateIdeographs(text, encoding);
    case NormalizerStep::kNfd:
    case NormalizerStep::kNfkd:
      return DecomposeAll(text, step == NormalizerStep::kNfkd, encoding);
    case NormalizerStep::kNfc:
    case NormalizerStep::kNfkc:
      if (!DecomposeAll(text, step == NormalizerStep::kNfkc, encoding)) return false;
      text->size = Compose(text->data, text->size);
      return true;
    case NormalizerStep::kDropNonspacingMarks:
      Filter(text, [](int32_t c) { return !IsNonspacingMark(c); });
      return true;
    case NormalizerStep::kDropMarks:
      Filter(text, [](int32_t c) { return !IsMark(c); });
      return true;
    case NormalizerStep::kLower:
      return Replace<2>(text, encoding, [](int32_t c, int32_t* out) { return ToLower(c, out); });
  }
  return true;
}

}  // namespace

bool Normalizer::Run(absl::string_view text, Encoding* encoding, absl::string_view* out) const {
  *out = text;
  if (steps_.empty() || text.empty()) return true;
  Characters characters;
  characters.begin = encoding->scratch.used();
  characters.data = encoding->scratch.Take<int32_t>(text.size());
  if (characters.data == nullptr) return encoding->NoRoom();
  for (size_t at = 0; at < text.size();)
    characters.data[characters.size++] = NextCharacter(text, &at);
  for (const NormalizerStep step : steps_) {
    if (!Do(step, &characters, encoding) || !encoding->InTime()) return false;
  }
  char encoded[4];
  size_t bytes = 0;
  for (size_t i = 0; i < characters.size; ++i) bytes += PutCharacter(characters.data[i], encoded);
  auto* const data = encoding->scratch.Take<char>(bytes);
  if (data == nullptr) return encoding->NoRoom();
  size_t at = 0;
  for (size_t i = 0; i < characters.size; ++i) {
    const size_t count = PutCharacter(characters.data[i], encoded);
    std::memcpy(data + at, encoded, count);
    at += count;
  }
  *out = absl::string_view(data, bytes);
  return true;
}

}  // namespace feedwater::server
