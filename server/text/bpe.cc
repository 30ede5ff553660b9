#include "server/text/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/text/unicode.h"

namespace feedwater::server {
namespace {

constexpr size_t kLooksEvery = 4096;        // merges between two looks at the clock
constexpr size_t kMostWholeWordBytes = 64;  // of a token that is found without merging

// GPT-2's alphabet: printable bytes stand for themselves, the others for characters from 256 on.
const std::array<int16_t, 324>& ByteOfCharacter() {
  static const auto* bytes = [] {
    auto* made = new std::array<int16_t, 324>;
    made->fill(-1);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      (*made)[static_cast<size_t>(is_printable ? byte : next++)] = static_cast<int16_t>(byte);
    }
    return made;
  }();
  return *bytes;
}

}  // namespace

bool FromByteAlphabet(absl::string_view token, std::string* bytes) {
  bytes->clear();
  if (FirstBadUtf8(token) != absl::string_view::npos) return false;
  for (size_t at = 0; at < token.size();) {
    const int32_t c = NextCharacter(token, &at);
    const auto& table = ByteOfCharacter();
    if (c >= static_cast<int32_t>(table.size()) || table[static_cast<size_t>(c)] < 0) return false;
    bytes->push_back(static_cast<char>(table[static_cast<size_t>(c)]));
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Bpe>> Bpe::Create(Vocabulary written, const MergeList& merges,
                                                 const BpeRules& rules) {
  auto bpe = std::make_unique<Bpe>();
  bpe->single_ids_.fill(-1);
  bpe->byte_ids_.fill(-1);
  bpe->is_byte_level_ = rules.is_byte_level;
  bpe->max_id_ = written.max_id();
  FW_RETURN_IF_ERROR(rules.is_byte_level ? bpe->AddBytes(written)
                                         : bpe->AddCharacters(std::move(written), rules));
  FW_RETURN_IF_ERROR(bpe->AddMerges(merges));
  bpe->FindWholeWords(rules.ignore_merges);
  return bpe;
}

absl::Status Bpe::AddBytes(const Vocabulary& written) {
  std::string bytes;
  tokens_.Reserve(written.size(), 0);
  for (size_t i = 0; i < written.size(); ++i) {
    // What is not written in the alphabet is no outcome of merges: it stands in added_tokens, too.
    if (!FromByteAlphabet(written.token(i), &bytes) || bytes.empty()) continue;
    FW_RETURN_IF_ERROR(tokens_.Add(bytes, written.id(i)));
    if (bytes.size() == 1) single_ids_[static_cast<unsigned char>(bytes[0])] = written.id(i);
  }
  FW_RETURN_IF_ERROR(tokens_.Finish());
  for (size_t byte = 0; byte < 256; ++byte) {
    if (single_ids_[byte] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model.vocab has no token for byte ", byte,
                     ", so that texts with it have no ids; train with "
                     "initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()"));
  }
  return absl::OkStatus();
}

absl::Status Bpe::AddCharacters(Vocabulary written, const BpeRules& rules) {
  tokens_ = std::move(written);
  for (size_t byte = 0; byte < 128; ++byte) {
    const char character = static_cast<char>(byte);
    single_ids_[byte] = tokens_.Find({&character, 1});
  }
  if (rules.byte_fallback) byte_ids_ = ByteTokens(tokens_);
  fuses_unknown_ = rules.fuses_unknown;
  if (rules.unknown.empty()) return absl::OkStatus();
  unknown_ = tokens_.Find(rules.unknown);
  if (unknown_ >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model has unk_token '", Printable(rules.unknown),
                                                 "', which model.vocab does not have"));
}

bool Bpe::TextOf(absl::string_view token, std::string* text) const {
  if (is_byte_level_) return FromByteAlphabet(token, text);
  *text = std::string(token);
  return true;
}

absl::Status Bpe::AddMerges(const MergeList& merges) {
  merges_.reserve(merges.size());
  std::string left, right;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const absl::string_view first = merges.first(rank), second = merges.second(rank);
    const auto wrong = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("model.merges[", rank, "] '", Printable(first),
                                                     " ", Printable(second), "' ", why));
    };
    if (first.empty() || second.empty()) return wrong("has an empty part");
    if (!TextOf(first, &left) || !TextOf(second, &right))
      return wrong("is not written in the alphabet of ByteLevel");
    const int32_t a = tokens_.Find(left), b = tokens_.Find(right),
                  made = tokens_.Find(left + right);
    if (a < 0 || b < 0 || made < 0)
      return wrong("has a part, or makes a token, that model.vocab does not have");
    if (!merges_.emplace(PairKey(a, b), Merge{static_cast<int32_t>(rank), made}).second)
      return wrong("stands there a second time");
  }
  return absl::OkStatus();
}

void Bpe::FindWholeWords(bool ignore_merges) {
  is_whole_.assign(static_cast<size_t>(max_id_ + 1), ignore_merges);
  if (ignore_merges) return;
  Symbol symbols[kMostWholeWordBytes];
  uint64_t heap[3 * kMostWholeWordBytes];
  TextScratch none(nullptr, 0);
  WorkClock clock;
  clock.Begin(/*limit_ms=*/3'600'000, /*gone=*/nullptr);
  IdSink nowhere(nullptr, 0, Truncation::kRight);
  Encoding encoding{none, clock, nowhere};
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const absl::string_view token = tokens_.token(i);
    if (token.size() > kMostWholeWordBytes) continue;
    int32_t size = 0;
    Begin(token, [&](int32_t id) {
      symbols[size++].id = id;
      return true;
    });
    is_whole_[static_cast<size_t>(tokens_.id(i))] =
        size > 0 && MergeAll(symbols, size, heap, &encoding) && symbols[0].after < 0 &&
        symbols[0].id == tokens_.id(i);
  }
}

int32_t Bpe::Find(absl::string_view token) const {
  if (!is_byte_level_) return tokens_.Find(token);
  std::string bytes;
  return FromByteAlphabet(token, &bytes) ? tokens_.Find(bytes) : -1;
}

int64_t Bpe::ScratchBytes(int64_t bytes, int64_t characters) const {
  return (is_byte_level_ ? bytes : characters) *
             static_cast<int64_t>(sizeof(Symbol) + 3 * sizeof(uint64_t)) +
         64;
}

// In the order of tokenizers: bytes that a character falls back to stand before what is unknown
// before it and not yet put.
template <typename Put>
bool Bpe::Begin(absl::string_view word, Put put) const {
  if (is_byte_level_) {
    return std::all_of(word.begin(), word.end(), [&](char byte) {
      return put(single_ids_[static_cast<unsigned char>(byte)]);
    });
  }
  bool waits = false;  // an unknown one
  for (size_t at = 0; at < word.size();) {
    const size_t from = at;
    const int32_t code = NextCharacter(word, &at);
    const absl::string_view character = word.substr(from, at - from);
    const int32_t id =
        code < 128 ? single_ids_[static_cast<size_t>(code)] : tokens_.Find(character);
    if (id >= 0) {
      if (std::exchange(waits, false) && !put(unknown_)) return false;
      if (!put(id)) return false;
      continue;
    }
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(character.begin(), character.end(),
                    [&](char byte) { return byte_id(byte) >= 0; })) {
      for (const char byte : character) {
        if (!put(byte_id(byte))) return false;
      }
    } else if (unknown_ >= 0 && std::exchange(waits, true) && !fuses_unknown_) {
      if (!put(unknown_)) return false;
    }
  }
  return !waits || put(unknown_);
}

bool Bpe::Encode(absl::string_view word, Encoding* encoding) const {
  if (word.size() <= tokens_.max_token_bytes()) {
    const int32_t id = tokens_.Find(word);
    if (id >= 0 && is_whole_[static_cast<size_t>(id)]) return encoding->ids.Add(id);
  }
  const ScratchFrame frame(&encoding->scratch);
  size_t size = 0;
  const auto count = [&](int32_t /*id*/) {
    return ++size % kLooksEvery != 0 || encoding->InTime();
  };
  if (is_byte_level_) {
    size = word.size();
  } else if (!Begin(word, count)) {
    return false;
  }
  auto* const symbols = size > INT32_MAX ? nullptr : encoding->scratch.Take<Symbol>(size);
  auto* const heap = encoding->scratch.Take<uint64_t>(3 * size);
  if (symbols == nullptr || heap == nullptr) return encoding->NoRoom();
  size = 0;
  const auto write = [&](int32_t id) {
    symbols[size].id = id;
    return ++size % kLooksEvery != 0 || encoding->InTime();
  };
  if (!Begin(word, write)) return false;
  if (size == 0) return true;
  if (!MergeAll(symbols, static_cast<int32_t>(size), heap, encoding)) return false;
  for (int32_t i = 0; i >= 0; i = symbols[i].after) {
    if (!encoding->ids.Add(symbols[i].id)) return false;
  }
  return true;
}

// The heap holds rank and place of each pair that can be put together, the first to be on top. An
// entry counts only if the pair at its place still has that rank.
bool Bpe::MergeAll(Symbol* symbols, int32_t size, uint64_t* heap, Encoding* encoding) const {
  for (int32_t i = 0; i < size; ++i) {
    symbols[i].before = i - 1;
    symbols[i].after = i + 1 < size ? i + 1 : -1;
  }
  size_t entries = 0;
  const auto merge_at = [&](int32_t place) -> const Merge* {
    const int32_t after = symbols[place].after;
    if (after < 0) return nullptr;
    const auto found = merges_.find(PairKey(symbols[place].id, symbols[after].id));
    return found == merges_.end() ? nullptr : &found->second;
  };
  const auto note = [&](int32_t place) {
    const Merge* const merge = merge_at(place);
    if (merge != nullptr)
      heap[entries++] = static_cast<uint64_t>(static_cast<uint32_t>(merge->rank)) << 32 |
                        static_cast<uint32_t>(place);
  };
  for (int32_t i = 0; i + 1 < size; ++i) note(i);
  std::make_heap(heap, heap + entries, std::greater<>());
  for (size_t looks = 1; entries > 0; ++looks) {
    if (looks % kLooksEvery == 0 && !encoding->InTime()) return false;
    std::pop_heap(heap, heap + entries, std::greater<>());
    const uint64_t entry = heap[--entries];
    const auto place = static_cast<int32_t>(entry & 0xffffffff);
    if (symbols[place].id < 0) continue;  // it went into its left neighbour
    const Merge* const merge = merge_at(place);
    if (merge == nullptr || static_cast<uint32_t>(merge->rank) != entry >> 32) continue;
    Symbol& left = symbols[place];
    Symbol& right = symbols[left.after];
    left.id = merge->id;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) symbols[left.after].before = place;
    for (const int32_t changed : {left.before, place}) {
      if (changed < 0) continue;
      const size_t before = entries;
      note(changed);
      if (entries > before) std::push_heap(heap, heap + entries, std::greater<>());
    }
  }
  return true;
}

}  // namespace feedwater::server
