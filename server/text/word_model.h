// From a word to its ids: what stands under `model` in a tokenizer.json. Words are what the
// normalizer and the splitter have left of a text. Immutable once made; thread-safe.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "server/text/encoding.h"

namespace feedwater::server {

class WordModel {
 public:
  virtual ~WordModel() = default;
  // False: nothing further is to do (Encoding).
  virtual bool Encode(absl::string_view word, Encoding* encoding) const = 0;
  virtual int32_t Find(absl::string_view token) const = 0;  // -1: there is none
  virtual int32_t max_id() const = 0;
  // That Encode takes for a word of so many bytes and characters. Byte fallback may make more of a
  // character than is reckoned with; such a word is refused.
  virtual int64_t ScratchBytes(int64_t bytes, int64_t characters) const = 0;
};

}  // namespace feedwater::server
