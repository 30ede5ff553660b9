// From a text to the ids of its tokens, as the file of a vocabulary says. A tokenizer is made from
// the bytes of that file, is immutable then, and gives the same ids on every machine and thread;
// it opens nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/encoding.h"

namespace feedwater::server {

// What a file of a vocabulary is.
enum class VocabularyKind {
  kTokenizerJson,  // tokenizer.json of Hugging Face
  kSentencePiece,  // a .model of SentencePiece
  kWordPiece,      // a token a line, as BERT's vocab.txt
  kWords,          // a word a line
};
absl::string_view VocabularyKindName(VocabularyKind kind);  // as in a pipeline file

// What lists of tokens do not say themselves.
struct LineRules {
  bool lowercase = false;  // kWordPiece: as BERT's uncased models; accents go, too
};

// The most that a file of a vocabulary may have.
inline constexpr int64_t kMostVocabularyBytes = 64 << 20;
// What a tokenizer takes while it is made, for each byte of its file and whatever that is, and the
// file with it. What is kept is less.
inline constexpr int64_t kTokenizerBytesPerByte = 20, kTokenizerFixedBytes = 8 << 20;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Gives the ids of a text, without special_before() and special_after(), to the encoding's sink.
  // False, too, when that has had enough: an error is the encoding's status. REQUIRES: UTF-8.
  virtual bool Encode(absl::string_view text, Encoding* encoding) const = 0;
  // That Encode takes for a text of so many bytes. Text that grows more than it does while it is
  // normalized is refused.
  virtual int64_t ScratchBytes(int64_t text_bytes) const = 0;

  virtual int32_t Find(absl::string_view token) const = 0;  // -1: there is no such token
  virtual int32_t max_id() const = 0;
  // What the file puts before and after every text, such as [CLS] and [SEP].
  const std::vector<int32_t>& special_before() const { return before_; }
  const std::vector<int32_t>& special_after() const { return after_; }

 protected:
  std::vector<int32_t> before_, after_;
};

// The kind that the bytes show; nothing: a list of tokens, of which only people know the kind.
std::optional<VocabularyKind> KindOfVocabulary(absl::string_view bytes);

// InvalidArgument names the entry or the line, and the cure. What a file asks for and is not done
// here is refused, never left out.
absl::StatusOr<std::unique_ptr<const Tokenizer>> MakeTokenizer(absl::string_view bytes,
                                                               VocabularyKind kind,
                                                               const LineRules& rules);

}  // namespace feedwater::server
