// A model of SentencePiece, Unigram or BPE, as a tokenizer. Own code, since Debian's library brings
// a protobuf of its own whose symbols are those of the daemon's, aborts and allocates where it
// likes, and does not check the character map of a model.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/byte_trie.h"
#include "server/text/character_map.h"
#include "server/text/sentence_piece_file.h"
#include "server/text/tokenizer.h"
#include "server/text/vocabulary.h"

namespace feedwater::server {

class SentencePiece : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(absl::string_view bytes);

  bool Encode(absl::string_view text, Encoding* encoding) const override;
  int64_t ScratchBytes(int64_t text_bytes) const override;
  int32_t Find(absl::string_view token) const override { return all_.Find(token); }
  int32_t max_id() const override { return all_.max_id(); }

 private:
  struct Symbol;  // of BPE
  struct Pair;
  class Ids;

  absl::Status AddPieces(const SentencePieceFile& file);
  // Writes to `out`. Where that is null, only counts: at least as many bytes as are written on the
  // way. False: the encoding says why.
  bool Normalize(absl::string_view text, char* out, size_t* bytes, Encoding* encoding) const;
  // The longest user-defined piece that `text` begins with. False: none.
  bool BeginsUserDefined(absl::string_view text, size_t* bytes) const;
  void Prefix(absl::string_view text, size_t* bytes, absl::string_view* becomes) const;
  bool EncodeUnigram(absl::string_view text, Encoding* encoding) const;
  bool EncodeBpe(absl::string_view text, Encoding* encoding) const;
  float ScoreOf(int32_t id) const { return scores_[static_cast<size_t>(id)]; }

  Vocabulary all_;
  std::vector<float> scores_;                    // by id
  std::vector<bool> is_user_defined_;            // by id
  ByteTrie pieces_;                              // that text is made of
  std::array<bool, 256> begins_user_defined_{};  // whether one begins with the byte
  std::vector<int32_t> byte_ids_;  // of 256 bytes; empty: unknown text has the id unknown_
  int32_t unknown_ = -1;
  float low_score_ = 0;
  CharacterMap characters_;
  bool is_bpe_ = false;
  bool adds_dummy_space_ = true, drops_extra_spaces_ = true, escapes_spaces_ = true,
       space_is_suffix_ = false;
};

}  // namespace feedwater::server
