// A .model of SentencePiece (sentencepiece_model.proto), read as bytes that nobody has checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

struct SentencePieceFile {
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    absl::string_view text;  // into the file
    float score = 0;
    int32_t type = kNormal;
  };
  enum Model { kUnigram = 1, kBpe = 2 };

  std::vector<Piece> pieces;
  int64_t model = kUnigram;
  bool byte_fallback = false, space_is_suffix = false;
  bool adds_dummy_space = true, drops_extra_spaces = true, escapes_spaces = true;
  absl::string_view characters;  // the precompiled map; into the file
};

// Valid as long as `bytes`. InvalidArgument: it is none, or has more pieces than there can be ids.
absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(absl::string_view bytes);

}  // namespace feedwater::server
