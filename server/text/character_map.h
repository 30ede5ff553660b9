// The character map of a SentencePiece model: what parts of a text become, such as full-width
// letters plain ones. It is a double-array trie (of Darts) and the texts that its values point to.
// A map is checked as a whole when it is made, so that no look-up can leave it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

class CharacterMap {
 public:
  // Nothing is mapped by an empty one. InvalidArgument: damaged, or a key or a value is longer.
  static constexpr size_t kMostKeyBytes = 256, kMostValueBytes = 4096;
  static absl::StatusOr<CharacterMap> Create(absl::string_view bytes);
  // The longest beginning of `text` that becomes something else, and what. False: none does.
  bool Find(absl::string_view text, size_t* bytes, absl::string_view* becomes) const;
  // What the shortest such beginning becomes. Text ends at a zero byte.
  bool FindShortest(absl::string_view text, absl::string_view* becomes) const;
  // Whether all that anything becomes is UTF-8.
  bool MakesText() const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a zero
};

}  // namespace feedwater::server
