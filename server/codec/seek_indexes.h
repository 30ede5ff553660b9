// Where decoders keep what they learn of JPEGs' scans (jpeg/seek_index.h), so that the next region
// of the same image costs less. By content, so that whatever changes a file makes its index
// unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace feedwater::server {

// XXH3-128 of an image file's bytes.
struct ContentHash {
  uint64_t low = 0, high = 0;
  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};

// Thread-safe.
class SeekIndexes {
 public:
  virtual ~SeekIndexes() = default;
  // Copies the image's document; false, and empty, when none is kept.
  virtual bool Find(const ContentHash& image, std::vector<std::byte>* document) const = 0;
  // Keeps a copy, where there is room, in place of a shorter one.
  virtual void Put(const ContentHash& image, absl::Span<const std::byte> document) = 0;
};

}  // namespace feedwater::server
