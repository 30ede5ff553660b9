#include "server/sampler/permutation.h"

#include <algorithm>
#include <bit>

#include "server/sampler/permutation_kernels.h"

namespace feedwater::server {
namespace {

// Halves of at least four bits, and eight rounds: a pair of inputs stays related only if its halves
// collide in every second round, which is less than 1 in 10,000 for the smallest network and
// vanishes for larger ones.
constexpr int kMinBits = 8;
constexpr int kRounds = kernels::kFeistelRounds;

}  // namespace

Permutation::Permutation(int64_t size, PhiloxKey key, ShuffleUse use)
    : size_(size), key_(key), instance_(kShuffleInstance + static_cast<uint32_t>(use)) {
  const int bits =
      std::max(kMinBits, static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1))));
  low_bits_ = (bits + 1) / 2;
  low_mask_ = static_cast<uint32_t>((uint64_t{1} << low_bits_) - 1);
  high_mask_ = static_cast<uint32_t>((uint64_t{1} << (bits - low_bits_)) - 1);
}

uint32_t Permutation::Round(int round, uint32_t half) const {
  return Philox4x32({half, static_cast<uint32_t>(round), instance_, 0}, key_)[0];
}

int64_t Permutation::At(int64_t index) const {
  if (size_ == 1) return 0;
  auto value = static_cast<uint64_t>(index);
  do {
    auto low = static_cast<uint32_t>(value) & low_mask_;
    auto high = static_cast<uint32_t>(value >> low_bits_);
    for (int round = 0; round < kRounds; round += 2) {
      high ^= Round(round, low) & high_mask_;
      low ^= Round(round + 1, high) & low_mask_;
    }
    value = uint64_t{high} << low_bits_ | low;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

void Permutation::AtAll(absl::Span<int64_t> indices) const {
  if (size_ == 1) return std::fill(indices.begin(), indices.end(), 0);
  const kernels::FeistelNetwork network{key_, instance_, low_bits_, low_mask_, high_mask_};
  constexpr size_t kBlock = 64;
  uint64_t values[kBlock];
  uint8_t places[kBlock];  // of the values that are still walked along their cycles
  for (; !indices.empty(); indices.remove_prefix(std::min(kBlock, indices.size()))) {
    size_t count = std::min(kBlock, indices.size());
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<uint64_t>(indices[i]);
      places[i] = static_cast<uint8_t>(i);
    }
    while (count > 0) {
      kernels::RunFeistel(network, values, count);
      size_t left = 0;
      for (size_t i = 0; i < count; ++i) {
        if (values[i] < static_cast<uint64_t>(size_)) {
          indices[places[i]] = static_cast<int64_t>(values[i]);
        } else {
          values[left] = values[i];
          places[left++] = places[i];
        }
      }
      count = left;
    }
  }
}

int64_t Permutation::IndexOf(int64_t target) const {
  if (size_ == 1) return 0;
  auto value = static_cast<uint64_t>(target);
  do {
    auto low = static_cast<uint32_t>(value) & low_mask_;
    auto high = static_cast<uint32_t>(value >> low_bits_);
    for (int round = kRounds - 2; round >= 0; round -= 2) {
      low ^= Round(round + 1, high) & low_mask_;
      high ^= Round(round, low) & high_mask_;
    }
    value = uint64_t{high} << low_bits_ | low;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace feedwater::server
