#include "server/text/normalizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/text/graphemes.h"
#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

using Kind = NormalizerStep::Kind;

constexpr int64_t kMostGrowth = 4;

// Characters in scratch, on top of which nothing else lies.
struct Characters {
  size_t begin = 0;  // of the scratch
  int32_t* data = nullptr;
  size_t size = 0;
  size_t origin = 0;  // how many of them, at the begin, come from there
};

template <typename Keep>
void Filter(Characters* text, Keep keep) {
  const size_t origin = text->origin;
  size_t kept = 0;
  text->origin = 0;
  for (size_t i = 0; i < text->size; ++i) {
    if (!keep(text->data[i])) continue;
    text->origin += i < origin ? 1 : 0;
    text->data[kept++] = text->data[i];
  }
  text->size = kept;
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

// The text becomes what `make` gives to the function it is called with, character by character. It
// is called twice, and does the same each time; false: there is nothing more to do.
template <typename Make>
bool Rewrite(Characters* text, Encoding* encoding, Make make) {
  size_t size = 0;
  if (!make([&](int32_t /*c*/) { ++size; })) return false;
  auto* const data = encoding->scratch.Take<int32_t>(size);
  if (data == nullptr) return encoding->NoRoom();
  int32_t* at = data;
  if (!make([&](int32_t c) { *at++ = c; })) return false;
  // To where they were before, so that many steps take no more room than the largest.
  std::memmove(text->data, data, size * sizeof(int32_t));
  encoding->scratch.ReleaseTo(text->begin);
  text->data = encoding->scratch.Take<int32_t>(size);
  text->size = size;
  return true;
}

// A character becomes those that `put` writes to a buffer of `most`, and says how many.
template <size_t most, typename Put>
bool Replace(Characters* text, Encoding* encoding, Put put) {
  int32_t made[most];
  size_t origin = 0;
  const bool is_done = Rewrite(text, encoding, [&](auto give) {
    origin = 0;
    for (size_t i = 0; i < text->size; ++i) {
      const size_t count = put(text->data[i], made);
      if (i < text->origin) origin += count;
      for (size_t k = 0; k < count; ++k) give(made[k]);
    }
    return true;
  });
  text->origin = origin;
  return is_done;
}

bool Prepend(const std::vector<int32_t>& what, Characters* text, Encoding* encoding) {
  if (text->size == 0) return true;
  if (text->origin > 0) text->origin += what.size();
  return Rewrite(text, encoding, [&](auto give) {
    std::for_each(what.begin(), what.end(), give);
    std::for_each(text->data, text->data + text->size, give);
    return true;
  });
}

// `match` gives the length of the match that begins there; 0: there is none. What stands for a
// match comes from where its last character does.
template <typename Match>
bool ReplaceMatches(const std::vector<int32_t>& to, Characters* text, Encoding* encoding,
                    Match match) {
  constexpr size_t kPlacesPerLook = 1 << 16;
  size_t origin = 0;
  const bool is_done = Rewrite(text, encoding, [&](auto give) {
    origin = 0;
    size_t looks = 0;
    for (size_t i = 0; i < text->size;) {
      if (++looks % kPlacesPerLook == 0 && !encoding->InTime()) return false;
      const size_t length = match(i);
      if (length == 0) {
        origin += i < text->origin ? 1 : 0;
        give(text->data[i++]);
        continue;
      }
      i += length;
      if (i - 1 < text->origin) origin += to.size();
      std::for_each(to.begin(), to.end(), give);
    }
    return true;
  });
  text->origin = origin;
  return is_done;
}

bool ReplaceStrings(const NormalizerStep& step, Characters* text, Encoding* encoding) {
  const std::vector<int32_t>& from = step.from;
  return ReplaceMatches(step.to, text, encoding, [&](size_t i) -> size_t {
    const int32_t* const at = text->data + i;
    const bool is_there =
        *at == from[0] && text->size - i >= from.size() && std::equal(from.begin(), from.end(), at);
    return is_there ? from.size() : 0;
  });
}

bool ReplaceRuns(const NormalizerStep& step, Characters* text, Encoding* encoding) {
  return ReplaceMatches(step.to, text, encoding, [&](size_t i) -> size_t {
    const int32_t *const at = text->data + i, *const end = text->data + text->size;
    const auto length = static_cast<size_t>(
        std::find_if(at, end, [&](int32_t c) { return c != step.from[0]; }) - at);
    return length >= 2 ? length : 0;
  });
}

// How many characters come from the origin where tokenizers tells for each whether it stands for
// one that was there (0), is one more (1), or stands for 1 + n (-n).
class OriginCount {
 public:
  explicit OriginCount(size_t origin) : origin_(origin) {}

  void Add(int64_t change) {
    End();
    change_ = change;
    has_last_ = true;
  }
  // What goes belongs to the one before; at the begin of a text it is not reckoned with.
  void Drop(size_t count) {
    if (has_last_) change_ -= static_cast<int64_t>(count);
  }
  size_t Finish() {
    End();
    return count_;
  }

 private:
  void End() {
    if (!std::exchange(has_last_, false)) return;
    const size_t from = change_ <= 0 || used_ == 0 ? used_ : used_ - 1;
    if (from < origin_) ++count_;
    if (change_ <= 0) used_ += 1 + static_cast<size_t>(-change_);
  }

  const size_t origin_;
  size_t used_ = 0, count_ = 0;
  int64_t change_ = 0;
  bool has_last_ = false;
};

// Clusters below 6 bytes are looked up as a whole, and then, as all others, by their characters.
// What is found is the shortest beginning that the map has, and it stands for all that was looked
// up: so tokenizers does it.
bool MapCharacters(const CharacterMap& map, Characters* text, Encoding* encoding) {
  constexpr size_t kMostClusterBytes = 5, kPlacesPerLook = 1 << 12;
  size_t origin = 0;
  const bool is_done = Rewrite(text, encoding, [&](auto give) {
    OriginCount count(text->origin);
    const auto map_part = [&](absl::string_view part, size_t characters) {
      absl::string_view becomes;
      if (!map.FindShortest(part, &becomes)) return false;
      size_t made = 0;
      for (size_t at = 0; at < becomes.size(); ++made) NextCharacter(becomes, &at);
      size_t i = 0;
      for (size_t at = 0; at < becomes.size(); ++i) {
        give(NextCharacter(becomes, &at));
        count.Add(i < characters ? 0 : 1);
      }
      if (made < characters) count.Drop(characters - made);
      return true;
    };
    GraphemeBreaker breaker;
    char bytes[kMostClusterBytes + 4];
    size_t begin = 0, looks = 0;
    const auto end_cluster = [&](size_t end) {
      size_t size = 0;
      for (size_t i = begin; i < end && size <= kMostClusterBytes; ++i)
        size += PutCharacter(text->data[i], bytes + size);
      if (size <= kMostClusterBytes && map_part({bytes, size}, end - begin)) return;
      for (size_t i = begin; i < end; ++i) {
        if (map_part({bytes, PutCharacter(text->data[i], bytes)}, 1)) continue;
        give(text->data[i]);
        count.Add(0);
      }
    };
    for (size_t i = 0; i < text->size; ++i) {
      if (++looks % kPlacesPerLook == 0 && !encoding->InTime()) return false;
      if (!breaker.BreaksBefore(text->data[i]) || i == begin) continue;
      end_cluster(i);
      begin = i;
    }
    if (begin < text->size) end_cluster(text->size);
    origin = count.Finish();
    return true;
  });
  text->origin = origin;
  return is_done;
}

void Strip(bool is_left, Characters* text) {
  const auto is_kept = [](int32_t c) { return !IsWhiteSpace(c); };
  int32_t* const end = text->data + text->size;
  if (is_left) {
    const auto dropped = static_cast<size_t>(std::find_if(text->data, end, is_kept) - text->data);
    std::memmove(text->data, text->data + dropped, (text->size - dropped) * sizeof(int32_t));
    text->size -= dropped;
    text->origin -= std::min(text->origin, dropped);
    return;
  }
  while (text->size > 0 && !is_kept(text->data[text->size - 1])) --text->size;
  text->origin = std::min(text->origin, text->size);
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

bool Do(const NormalizerStep& step, Characters* text, Encoding* encoding) {
  switch (step.kind) {
    case Kind::kClean:
      Clean(text);
      return true;
    case Kind::kSeparateIdeographs:
      return SeparateIdeographs(text, encoding);
    case Kind::kNfd:
    case Kind::kNfkd:
      return DecomposeAll(text, step.kind == Kind::kNfkd, encoding);
    case Kind::kNfc:
    case Kind::kNfkc:
      if (!DecomposeAll(text, step.kind == Kind::kNfkc, encoding)) return false;
      text->size = Compose(text->data, text->size);
      text->origin = std::min(text->origin, text->size);
      return true;
    case Kind::kDropNonspacingMarks:
      Filter(text, [](int32_t c) { return !IsNonspacingMark(c); });
      return true;
    case Kind::kDropMarks:
      Filter(text, [](int32_t c) { return !IsMark(c); });
      return true;
    case Kind::kLower:
      return Replace<2>(text, encoding, [](int32_t c, int32_t* out) { return ToLower(c, out); });
    case Kind::kStripLeft:
    case Kind::kStripRight:
      Strip(step.kind == Kind::kStripLeft, text);
      return true;
    case Kind::kPrepend:
      return Prepend(step.to, text, encoding);
    case Kind::kReplace:
      return ReplaceStrings(step, text, encoding);
    case Kind::kReplaceRuns:
      return ReplaceRuns(step, text, encoding);
    case Kind::kMapCharacters:
      return MapCharacters(*step.map, text, encoding);
  }
  return true;
}

}  // namespace

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {
  const auto bytes_of = [](const std::vector<int32_t>& text) {
    char bytes[4];
    size_t size = 0;
    for (const int32_t c : text) size += PutCharacter(c, bytes);
    return static_cast<int64_t>(size);
  };
  for (const NormalizerStep& step : steps_) {
    if (step.kind == Kind::kPrepend) prepended_bytes_ += bytes_of(step.to);
    if (step.kind != Kind::kReplace) continue;
    const int64_t before = bytes_of(step.from), after = bytes_of(step.to);
    growth_ = std::min(kMostGrowth, growth_ * std::max<int64_t>(1, (after + before - 1) / before));
  }
}

bool Normalizer::Run(absl::string_view text, Encoding* encoding, absl::string_view* out,
                     size_t* origin) const {
  *out = text;
  if (steps_.empty() || text.empty()) return true;
  Characters characters;
  characters.begin = encoding->scratch.used();
  characters.data = encoding->scratch.Take<int32_t>(text.size());
  if (characters.data == nullptr) return encoding->NoRoom();
  for (size_t at = 0; at < text.size();) {
    characters.origin += at < *origin ? 1 : 0;
    characters.data[characters.size++] = NextCharacter(text, &at);
  }
  for (const NormalizerStep& step : steps_) {
    if (!Do(step, &characters, encoding) || !encoding->InTime()) return false;
  }
  char encoded[4];
  size_t bytes = 0;
  for (size_t i = 0; i < characters.size; ++i) bytes += PutCharacter(characters.data[i], encoded);
  auto* const data = encoding->scratch.Take<char>(bytes);
  if (data == nullptr) return encoding->NoRoom();
  size_t at = 0;
  for (size_t i = 0; i < characters.size; ++i) {
    if (i == characters.origin) *origin = at;
    const size_t count = PutCharacter(characters.data[i], encoded);
    std::memcpy(data + at, encoded, count);
    at += count;
  }
  if (characters.origin >= characters.size) *origin = bytes;
  *out = absl::string_view(data, bytes);
  return true;
}

}  // namespace feedwater::server
