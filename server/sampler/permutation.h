// A keyed permutation of [0, size) in constant memory: an alternating Feistel network on the bits
// of size - 1, with Philox4x32-10 as its round function, walked along its cycle until the result
// lies below `size`. A value; thread-safe. README.md of this folder gives it as formulas.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "server/base/philox.h"

namespace feedwater::server {

// What a permutation is for. Stands in the counter, so that permutations of one epoch do not
// resemble each other.
enum class ShuffleUse : uint32_t { kRecords = 0, kShards = 1, kWindow = 2, kWindowKey = 3 };

class Permutation {
 public:
  // REQUIRES: size >= 1.
  Permutation(int64_t size, PhiloxKey key, ShuffleUse use);

  int64_t size() const { return size_; }
  int64_t At(int64_t index) const;  // REQUIRES: index in [0, size)
  // Each index becomes what At gives for it, many at a time: a tenth of At's time.
  void AtAll(absl::Span<int64_t> indices) const;
  int64_t IndexOf(int64_t value) const;  // the inverse: At(IndexOf(value)) == value

 private:
  uint32_t Round(int round, uint32_t half) const;

  int64_t size_;
  PhiloxKey key_;
  uint32_t instance_;
  int low_bits_;
  uint32_t low_mask_, high_mask_;
};

}  // namespace feedwater::server
