#include "server/text/character_map.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

// As darts-clone lays a unit out.
bool IsLeaf(uint32_t unit) { return (unit >> 31) != 0; }
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000ff; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

constexpr int kMostPrefixes = 32;  // as SentencePiece looks at

// Whether no key is longer than `most` bytes, which none is that goes in circles. A state is where
// the offset of a unit leads; a unit lies at a state's place XOR the byte that leads on. Each state
// is looked at once. REQUIRES: no offset leads out of `units`.
bool KeysEnd(const std::vector<uint32_t>& units, size_t most) {
  if (IsLeaf(units[0])) return true;
  const auto state_before = [&](size_t unit) { return unit ^ (units[unit] & 0xff); };
  // The units behind each state, those of state i from first[i] on.
  std::vector<uint32_t> first(units.size() + 1), behind(units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    if (!IsLeaf(units[i]) && state_before(i) < units.size()) ++first[state_before(i) + 1];
  }
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<uint32_t> next(first.begin(), first.end() - 1);
  for (size_t i = 0; i < units.size(); ++i) {
    if (!IsLeaf(units[i]) && state_before(i) < units.size())
      behind[next[state_before(i)]++] = static_cast<uint32_t>(i);
  }
  std::copy(first.begin(), first.end() - 1, next.begin());
  constexpr uint16_t kUnknown = 0xffff, kOnTheWay = 0xfffe;
  std::vector<uint16_t> heights(units.size(), kUnknown);  // bytes of the longest way on
  std::vector<uint32_t> path = {OffsetOf(units[0])};
  heights[path[0]] = kOnTheWay;
  std::vector<uint16_t> best = {0};  // of the states of the path, so far
  while (!path.empty()) {
    const uint32_t state = path.back();
    if (next[state] == first[state + 1]) {
      heights[state] = best.back();
      const size_t height = best.back() + size_t{1};
      path.pop_back();
      best.pop_back();
      if (!best.empty()) best.back() = std::max(best.back(), static_cast<uint16_t>(height));
      continue;
    }
    const uint32_t unit = behind[next[state]++];
    const uint32_t to = unit ^ OffsetOf(units[unit]);
    if (heights[to] == kUnknown) {
      if (path.size() > most) return false;
      heights[to] = kOnTheWay;
      path.push_back(to);
      best.push_back(0);
      continue;
    }
    if (heights[to] == kOnTheWay || path.size() + heights[to] > most) return false;
    best.back() = std::max(best.back(), static_cast<uint16_t>(heights[to] + 1));
  }
  return true;
}

}  // namespace

absl::StatusOr<CharacterMap> CharacterMap::Create(absl::string_view bytes) {
  CharacterMap map;
  if (bytes.empty()) return map;
  const auto wrong = [] { return absl::InvalidArgumentError("its character map is damaged"); };
  uint32_t trie_bytes = 0;
  if (bytes.size() <= sizeof(trie_bytes)) return wrong();
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes >= bytes.size() || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes == 0)
    return wrong();
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.texts_ = std::string(bytes.substr(trie_bytes));
  if (map.texts_.back() != '\0') return wrong();
  for (size_t begin = 0; begin < map.texts_.size();) {
    const size_t end = map.texts_.find('\0', begin);
    if (end - begin > kMostValueBytes) {
      return absl::InvalidArgumentError(absl::StrCat("its character map maps to a text of ",
                                                     end - begin, " bytes; at most ",
                                                     kMostValueBytes, " are read"));
    }
    begin = end + 1;
  }
  for (size_t i = 0; i < map.units_.size(); ++i) {
    const uint32_t unit = map.units_[i];
    if (IsLeaf(unit)) continue;  // no byte leads there
    const size_t children = i ^ OffsetOf(unit);
    if ((children | 0xff) >= map.units_.size()) return wrong();
    if (HasLeaf(unit) && ValueOf(map.units_[children]) >= map.texts_.size()) return wrong();
  }
  if (KeysEnd(map.units_, kMostKeyBytes)) return map;
  return absl::InvalidArgumentError(absl::StrCat(
      "its character map is damaged, or maps texts of more than ", kMostKeyBytes, " bytes"));
}

bool CharacterMap::Find(absl::string_view text, size_t* bytes, absl::string_view* becomes) const {
  if (units_.empty() || IsLeaf(units_[0])) return false;
  bool is_found = false;
  size_t node = OffsetOf(units_[0]);
  int prefixes = 0;
  for (size_t at = 0; at < text.size() && prefixes < kMostPrefixes; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    const uint32_t unit = units_[node];
    if (LabelOf(unit) != byte) break;
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    ++prefixes;
    is_found = true;
    *bytes = at + 1;
    *becomes = absl::string_view(texts_.data() + ValueOf(units_[node]));
  }
  return is_found;
}

bool CharacterMap::FindShortest(absl::string_view text, absl::string_view* becomes) const {
  if (units_.empty() || IsLeaf(units_[0])) return false;
  size_t node = OffsetOf(units_[0]);
  for (const char one : text) {
    const auto byte = static_cast<unsigned char>(one);
    node ^= byte;
    const uint32_t unit = units_[node];
    if (byte == 0 || LabelOf(unit) != byte) return false;
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    *becomes = absl::string_view(texts_.data() + ValueOf(units_[node]));
    return true;
  }
  return false;
}

bool CharacterMap::MakesText() const {
  if (FirstBadUtf8(texts_) != absl::string_view::npos) return false;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (IsLeaf(units_[i]) || !HasLeaf(units_[i])) continue;
    const uint32_t begins = ValueOf(units_[i ^ OffsetOf(units_[i])]);
    if ((static_cast<unsigned char>(texts_[begins]) & 0xc0) == 0x80) return false;
  }
  return true;
}

}  // namespace feedwater::server
