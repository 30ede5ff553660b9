// The Feistel network of Permutation over many values at once, in vectors of the CPU that runs it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/base/philox.h"

namespace feedwater::server::kernels {

inline constexpr int kFeistelRounds = 8;

struct FeistelNetwork {
  PhiloxKey key{};
  uint32_t instance = 0;
  int low_bits = 0;
  uint32_t low_mask = 0, high_mask = 0;
};

// Replaces each value by what the network makes of it, the bits that Permutation::At computes.
void RunFeistel(const FeistelNetwork& network, uint64_t* values, size_t count);

}  // namespace feedwater::server::kernels
