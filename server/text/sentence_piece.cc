#include "server/text/sentence_piece.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/status.h"
#include "server/base/yaml.h"
#include "server/text/best_path.h"

namespace feedwater::server {
namespace {

constexpr absl::string_view kSpace = "\xe2\x96\x81";  // U+2581
// Arithmetic as of sentencepiece 0.2.2 and later.
constexpr float kUnknownPenalty = 10;
constexpr float kMostScore = 100'000;  // of a path: beyond it, scores count from there
constexpr size_t kMostPieceBytes = 1024;
constexpr size_t kLooksEvery = 64;  // places between two looks at the clock
// Normalized text, and for each byte of it what Unigram or BPE keep; most text is a quarter.
constexpr int64_t kScratchPerByte = 80;

}  // namespace

// Takes ids of pieces: unknown ones are bytes, or one for as many as follow each other.
class SentencePiece::Ids {
 public:
  Ids(const SentencePiece& model, Encoding* encoding) : model_(model), encoding_(*encoding) {}

  bool Add(absl::string_view piece, int32_t id) {
    const bool is_unknown = id == model_.unknown_;
    const bool goes_on = is_unknown && std::exchange(was_unknown_, is_unknown);
    was_unknown_ = is_unknown;
    if (!is_unknown || model_.byte_ids_.empty()) return goes_on || encoding_.ids.Add(id);
    for (const char byte : piece) {
      if (!encoding_.ids.Add(model_.byte_ids_[static_cast<unsigned char>(byte)])) return false;
    }
    return true;
  }

 private:
  const SentencePiece& model_;
  Encoding& encoding_;
  bool was_unknown_ = false;
};

struct SentencePiece::Symbol {
  int32_t before, after;
  uint32_t offset, bytes;  // bytes 0: it went into its left neighbour
  bool is_fixed;
};

struct SentencePiece::Pair {
  float score;
  int32_t left, right;
  uint32_t bytes;
  // The order of a heap whose top has the highest score, and of equal ones stands first.
  friend bool operator<(const Pair& a, const Pair& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  }
};

absl::StatusOr<std::unique_ptr<const Tokenizer>> SentencePiece::Create(absl::string_view bytes) {
  FW_ASSIGN_OR_RETURN(const SentencePieceFile file, ReadSentencePieceFile(bytes));
  auto model = std::make_unique<SentencePiece>();
  if (file.model != SentencePieceFile::kUnigram && file.model != SentencePieceFile::kBpe) {
    return absl::InvalidArgumentError(
        "it is a SentencePiece model of words or characters, which is not done here; Unigram and "
        "BPE are");
  }
  model->is_bpe_ = file.model == SentencePieceFile::kBpe;
  model->adds_dummy_space_ = file.adds_dummy_space;
  model->drops_extra_spaces_ = file.drops_extra_spaces;
  model->escapes_spaces_ = file.escapes_spaces;
  model->space_is_suffix_ = file.space_is_suffix;
  FW_ASSIGN_OR_RETURN(model->characters_, CharacterMap::Create(file.characters));
  FW_RETURN_IF_ERROR(model->AddPieces(file));
  return model;
}

absl::Status SentencePiece::AddPieces(const SentencePieceFile& file) {
  std::vector<ByteTrie::Key> keys;
  keys.reserve(file.pieces.size());
  scores_.reserve(file.pieces.size());
  all_.Reserve(file.pieces.size(), 0);
  low_score_ = FLT_MAX;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const SentencePieceFile::Piece& piece = file.pieces[i];
    const auto id = static_cast<int32_t>(i);
    const auto wrong = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat("piece ", i, " '", Printable(piece.text), "' ", why));
    };
    if (piece.text.empty()) return wrong("is empty");
    if (piece.text.size() > kMostPieceBytes) {
      return wrong(absl::StrCat("has ", piece.text.size(), " bytes; at most ", kMostPieceBytes,
                                " are read"));
    }
    if (!std::isfinite(piece.score)) return wrong("has a score that is no number");
    FW_RETURN_IF_ERROR(all_.Add(piece.text, id));
    scores_.push_back(piece.score);
    is_user_defined_.push_back(piece.type == SentencePieceFile::kUserDefined);
    switch (piece.type) {
      case SentencePieceFile::kNormal:
        low_score_ = std::min(low_score_, piece.score);
        [[fallthrough]];
      case SentencePieceFile::kUserDefined:
        keys.push_back({piece.text, id});
        if (is_user_defined_.back())
          begins_user_defined_[static_cast<unsigned char>(piece.text[0])] = true;
        break;
      case SentencePieceFile::kUnknown:
        if (unknown_ >= 0) return wrong("is a second unknown one");
        unknown_ = id;
        break;
      case SentencePieceFile::kControl:
      case SentencePieceFile::kByte:
        break;
      default:
        return wrong(absl::StrCat("has the type ", piece.type, ", which is not done here"));
    }
  }
  if (unknown_ < 0) return absl::InvalidArgumentError("it has no unknown piece");
  FW_RETURN_IF_ERROR(all_.Finish());
  ByteTrie::Key twice;
  if (!pieces_.Build(std::move(keys), &twice)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "piece ", twice.value, " '", Printable(twice.text), "' stands there a second time"));
  }
  if (!file.byte_fallback) return absl::OkStatus();
  const std::array<int32_t, 256> byte_ids = ByteTokens(all_);
  byte_ids_.assign(byte_ids.begin(), byte_ids.end());
  const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
  if (missing != byte_ids_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("it has byte_fallback, and no piece ",
                                                   ByteToken(missing - byte_ids_.begin())));
  }
  return absl::OkStatus();
}

bool SentencePiece::BeginsUserDefined(absl::string_view text, size_t* bytes) const {
  if (!begins_user_defined_[static_cast<unsigned char>(text[0])]) return false;
  bool is_found = false;
  uint32_t node = ByteTrie::kRoot;
  for (size_t at = 0; at < text.size() && pieces_.Step(&node, text[at]); ++at) {
    const int32_t id = pieces_.value(node);
    if (id < 0 || !is_user_defined_[static_cast<size_t>(id)]) continue;
    is_found = true;
    *bytes = at + 1;
  }
  return is_found;
}

void SentencePiece::Prefix(absl::string_view text, size_t* bytes,
                           absl::string_view* becomes) const {
  if (BeginsUserDefined(text, bytes)) {
    *becomes = text.substr(0, *bytes);
    return;
  }
  if (characters_.Find(text, bytes, becomes)) return;
  *bytes = CharacterBytes(text);
  *becomes = text.substr(0, *bytes);
}

bool SentencePiece::Normalize(absl::string_view text, char* out, size_t* made,
                              Encoding* encoding) const {
  size_t& size = *made = 0;
  size_t looks = 0;
  const absl::string_view space = escapes_spaces_ ? kSpace : absl::string_view(" ");
  const auto put = [&](absl::string_view piece) {
    if (out != nullptr) std::memcpy(out + size, piece.data(), piece.size());
    size += piece.size();
  };
  size_t bytes = 0;
  absl::string_view becomes;
  while (drops_extra_spaces_ && !text.empty()) {
    if (++looks % kLooksEvery == 0 && !encoding->InTime()) return false;
    Prefix(text, &bytes, &becomes);
    if (becomes != " ") break;
    text.remove_prefix(bytes);
  }
  if (text.empty()) return true;
  if (!space_is_suffix_ && adds_dummy_space_) put(space);
  bool was_space = drops_extra_spaces_;
  while (!text.empty()) {
    if (++looks % kLooksEvery == 0 && !encoding->InTime()) return false;
    Prefix(text, &bytes, &becomes);
    text.remove_prefix(bytes);
    while (was_space && absl::ConsumePrefix(&becomes, " ")) {
    }
    for (const char byte : becomes) put(byte == ' ' ? space : absl::string_view(&byte, 1));
    if (!becomes.empty()) was_space = drops_extra_spaces_ && becomes.back() == ' ';
  }
  // The dummy one is cut off, too, and so is U+2581 of the text itself.
  while (drops_extra_spaces_ && out != nullptr && absl::EndsWith({out, size}, space))
    size -= space.size();
  if (space_is_suffix_ && adds_dummy_space_) put(space);
  return true;
}

bool SentencePiece::Encode(absl::string_view text, Encoding* encoding) const {
  const ScratchFrame frame(&encoding->scratch);
  size_t bytes = 0;
  if (!Normalize(text, nullptr, &bytes, encoding)) return false;
  auto* const room = bytes > INT32_MAX ? nullptr : encoding->scratch.Take<char>(bytes);
  if (room == nullptr) return encoding->NoRoom();
  if (!Normalize(text, room, &bytes, encoding)) return false;
  const absl::string_view normalized(room, bytes);
  if (normalized.empty()) return true;
  if (!encoding->InTime()) return false;
  return is_bpe_ ? EncodeBpe(normalized, encoding) : EncodeUnigram(normalized, encoding);
}

int64_t SentencePiece::ScratchBytes(int64_t text_bytes) const {
  return kScratchPerByte * text_bytes + 4096;
}

bool SentencePiece::EncodeUnigram(absl::string_view text, Encoding* encoding) const {
  Ids ids(*this, encoding);
  return WalkBestPath<float>(
      text, pieces_, {unknown_, low_score_ - kUnknownPenalty}, kMostScore, encoding,
      [&](int32_t id, size_t bytes) {
        // Above all others, and one long piece above several.
        return is_user_defined_[static_cast<size_t>(id)]
                   ? static_cast<float>(0.1 * static_cast<double>(bytes - 1))
                   : ScoreOf(id);
      },
      [&](absl::string_view piece, int32_t id) { return ids.Add(piece, id); });
}

bool SentencePiece::EncodeBpe(absl::string_view text, Encoding* encoding) const {
  size_t count = 0;
  const auto next_symbol = [&](absl::string_view rest, bool* is_fixed) {
    size_t bytes = 0;
    *is_fixed = BeginsUserDefined(rest, &bytes);
    return *is_fixed ? bytes : CharacterBytes(rest);
  };
  bool is_fixed = false;
  for (size_t at = 0; at < text.size(); ++count) {
    if (count % kLooksEvery == 0 && !encoding->InTime()) return false;
    at += next_symbol(text.substr(at), &is_fixed);
  }
  auto* const symbols = encoding->scratch.Take<Symbol>(count);
  auto* const heap = encoding->scratch.Take<Pair>(3 * count);
  if (symbols == nullptr || heap == nullptr) return encoding->NoRoom();
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % kLooksEvery == 0 && !encoding->InTime()) return false;
    const size_t bytes = next_symbol(text.substr(at), &is_fixed);
    symbols[i] = {static_cast<int32_t>(i) - 1, i + 1 < count ? static_cast<int32_t>(i) + 1 : -1,
                  static_cast<uint32_t>(at), static_cast<uint32_t>(bytes), is_fixed};
    at += bytes;
  }
  const auto piece = [&](const Symbol& symbol) { return text.substr(symbol.offset, symbol.bytes); };
  const auto find = [&](absl::string_view key) {
    if (key.size() > all_.max_token_bytes()) return -1;
    uint32_t node = ByteTrie::kRoot;
    for (const char byte : key) {
      if (!pieces_.Step(&node, byte)) return -1;
    }
    return pieces_.value(node);
  };
  size_t entries = 0;
  const auto note = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0 || symbols[left].is_fixed || symbols[right].is_fixed) return false;
    const uint32_t bytes = symbols[left].bytes + symbols[right].bytes;
    const int32_t id = find(text.substr(symbols[left].offset, bytes));
    if (id >= 0) heap[entries++] = {ScoreOf(id), left, right, bytes};
    return id >= 0;
  };
  for (size_t i = 1; i < count; ++i) {
    if (i % kLooksEvery == 0 && !encoding->InTime()) return false;
    note(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  }
  std::make_heap(heap, heap + entries);
  for (size_t merges = 1; entries > 0; ++merges) {
    if (merges % kLooksEvery == 0 && !encoding->InTime()) return false;
    std::pop_heap(heap, heap + entries);
    const Pair top = heap[--entries];
    Symbol &left = symbols[top.left], &right = symbols[top.right];
    if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != top.bytes) continue;
    left.bytes = top.bytes;
    right.bytes = 0;
    left.after = right.after;
    if (left.after >= 0) symbols[left.after].before = top.left;
    if (note(left.before, top.left)) std::push_heap(heap, heap + entries);
    if (note(top.left, left.after)) std::push_heap(heap, heap + entries);
  }
  Ids ids(*this, encoding);
  size_t looks = 0;
  for (int32_t i = 0; i >= 0; i = symbols[i].after) {
    if (++looks % kLooksEvery == 0 && !encoding->InTime()) return false;
    const int32_t id = find(piece(symbols[i]));
    if (!ids.Add(piece(symbols[i]), id < 0 ? unknown_ : id)) return false;
  }
  return true;
}

}  // namespace feedwater::server
