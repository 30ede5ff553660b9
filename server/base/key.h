// A Key names a thing by everything that makes it what it is: a dataset's saved index, a cache, an
// opened pipeline. Every part carries its name and its length, so that no two lists of parts look
// alike, whatever stands in them: users choose what is in a pipeline file, and what is found under
// one user's key is given to others.
//
//   const std::string name = Key("index").Add("format", "cifar10").Add("files", files).Name();
//
// Name() is for files and for memory: SHA-256, because nobody must be able to find a second input
// for a name that others use, which XXH3 does not give.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

// FIPS 180-4. Written here because decoders make keys too, and the usual library reads files and
// settings when it is first used, which a decoder's sandbox refuses.
std::array<uint8_t, 32> Sha256(absl::string_view bytes);

class Key {
 public:
  explicit Key(absl::string_view kind) : text_(absl::StrCat(kind, "\n")) {}

  Key& Add(absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text_, name, " ", value.size(), ":", value, "\n");
    return *this;
  }
  Key& Add(absl::string_view name, int64_t number) {
    absl::StrAppend(&text_, name, " = ", number, "\n");
    return *this;
  }
  Key& Add(absl::string_view name, const std::vector<std::string>& values) {
    Add(name, static_cast<int64_t>(values.size()));
    for (const std::string& value : values) Add("-", value);
    return *this;
  }

  const std::string& text() const { return text_; }  // readable, and different for different parts
  std::string Name() const;                          // the first 32 hex digits of its SHA-256

 private:
  std::string text_;
};

// Whether Name() could have given it.
bool IsKeyName(absl::string_view name);

}  // namespace feedwater::server
