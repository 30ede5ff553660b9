// From RGB to quantised coefficients: the inner loops of the way into a JPEG, once in source and
// compiled for every SIMD target by Highway (server/codec/resample_kernels.h says how one is
// chosen). All targets give the numbers of libjpeg-turbo 2.1 with the accurate integer transform.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/codec/jpeg/block_row.h"

namespace feedwater::server::jpeg {

// A quantisation table as forward_row divides by it: by multiplications, which are exact for
// whatever the transform gives.
struct Divisors {
  // `steps`: 64 of 1..255, in natural order.
  explicit Divisors(const uint16_t* steps);
  Divisors() = default;

  uint16_t half[kBlockSamples], reciprocal[kBlockSamples], scale[kBlockSamples];
};

// Bytes behind the end of a row that a kernel may read or write.
inline constexpr size_t kForwardPadding = 64;

struct ForwardKernels {
  const char* target;

  void (*rgb_to_ycc)(const uint8_t* rgb, size_t count, uint8_t* y, uint8_t* cb, uint8_t* cr);
  // Means of 2x2 samples of two rows: `count` of them. libjpeg rounds by turns down and up.
  void (*halve)(const uint8_t* above, const uint8_t* below, size_t count, uint8_t* out);
  // `blocks` blocks side by side: eight rows of samples, `stride` apart, to 64 coefficients each,
  // in natural order. Reads and writes up to three blocks more.
  void (*forward_row)(const uint8_t* samples, size_t stride, size_t blocks,
                      const Divisors& divisors, int16_t* coefficients);
};

inline constexpr size_t kForwardBlocks = 4;  // at most so many at once

// The table for this CPU, as ActivePixelKernels().
const ForwardKernels& ActiveForwardKernels();

}  // namespace feedwater::server::jpeg
