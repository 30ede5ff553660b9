// The inner loops of noise.h, once in source and compiled for every SIMD target by Highway, which
// chooses at run time (codec/resample_kernels.h). Integers, so all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

inline constexpr size_t kNoiseBlock = 256;  // numbers made at once

struct NoiseTable {
  const char* target;
  // kNoiseBlock words of Philox4x32-10 with this key: word 4 i + j is word j of block first + i of
  // counter {block, 0, 0, 0}.
  void (*words)(const uint32_t key[2], uint32_t first, uint32_t* out);
  // out = pixels + noise (6 binary places), rounded and saturated.
  void (*add)(const uint8_t* pixels, const int16_t* noise, size_t count, uint8_t* out);
};

// As kernels::Resample().
const NoiseTable& Noises();

}  // namespace feedwater::server::kernels
