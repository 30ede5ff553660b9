#include "server/text/sentence_piece_file.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/text/vocabulary.h"

namespace feedwater::server {
namespace {

// The fields of a protobuf message, one after the other.
class Fields {
 public:
  explicit Fields(absl::string_view message) : rest_(message) {}

  // False at the end, or where it is damaged.
  bool Next() {
    uint64_t tag = 0;
    if (rest_.empty() || !TakeNumber(&tag)) return false;
    number_ = tag >> 3;
    bytes_ = {};
    value_ = 0;
    switch (tag & 7) {
      case 0:
        return TakeNumber(&value_);
      case 1:
        return Take(8);
      case 2: {
        uint64_t length = 0;
        return TakeNumber(&length) && Take(length);
      }
      case 5:
        return Take(4);
      default:
        return good_ = false;
    }
  }
  bool good() const { return good_; }
  uint64_t number() const { return number_; }
  int64_t value() const { return static_cast<int64_t>(value_); }
  bool is_true() const { return value_ != 0; }
  absl::string_view bytes() const { return bytes_; }
  float real() const {
    float value = 0;
    if (bytes_.size() == sizeof(value)) std::memcpy(&value, bytes_.data(), sizeof(value));
    return value;
  }

 private:
  bool TakeNumber(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return good_ = false;
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return good_ = false;
  }
  bool Take(uint64_t length) {
    if (length > rest_.size()) return good_ = false;
    bytes_ = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }

  absl::string_view rest_, bytes_;
  uint64_t number_ = 0, value_ = 0;
  bool good_ = true;
};

bool ReadPiece(absl::string_view message, SentencePieceFile::Piece* piece) {
  Fields fields(message);
  while (fields.Next()) {
    if (fields.number() == 1) piece->text = fields.bytes();
    if (fields.number() == 2) piece->score = fields.real();
    if (fields.number() == 3)
      piece->type = static_cast<int32_t>(std::clamp<int64_t>(fields.value(), 0, INT32_MAX));
  }
  return fields.good();
}

bool ReadTrainerSpec(absl::string_view message, SentencePieceFile* file) {
  Fields fields(message);
  while (fields.Next()) {
    if (fields.number() == 3) file->model = fields.value();
    if (fields.number() == 24) file->space_is_suffix = fields.is_true();
    if (fields.number() == 35) file->byte_fallback = fields.is_true();
  }
  return fields.good();
}

bool ReadNormalizerSpec(absl::string_view message, SentencePieceFile* file) {
  Fields fields(message);
  while (fields.Next()) {
    if (fields.number() == 2) file->characters = fields.bytes();
    if (fields.number() == 3) file->adds_dummy_space = fields.is_true();
    if (fields.number() == 4) file->drops_extra_spaces = fields.is_true();
    if (fields.number() == 5) file->escapes_spaces = fields.is_true();
  }
  return fields.good();
}

}  // namespace

absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(absl::string_view bytes) {
  SentencePieceFile file;
  size_t pieces = 0;
  for (Fields fields(bytes); fields.Next();) pieces += fields.number() == 1 ? 1 : 0;
  file.pieces.reserve(std::min(pieces, static_cast<size_t>(kMostTokens)));
  Fields fields(bytes);
  bool is_good = true;
  while (is_good && fields.Next()) {
    if (fields.number() == 1) {
      if (static_cast<int64_t>(file.pieces.size()) >= kMostTokens)
        return absl::InvalidArgumentError(
            absl::StrCat("it has more than ", kMostTokens, " pieces"));
      is_good = ReadPiece(fields.bytes(), &file.pieces.emplace_back());
    } else if (fields.number() == 2) {
      is_good = ReadTrainerSpec(fields.bytes(), &file);
    } else if (fields.number() == 3) {
      is_good = ReadNormalizerSpec(fields.bytes(), &file);
    }
  }
  if (is_good && fields.good() && !file.pieces.empty()) return file;
  return absl::InvalidArgumentError("it is no model of SentencePiece, or is damaged");
}

}  // namespace feedwater::server
