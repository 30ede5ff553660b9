// The inner loop of MedianBlur (filter.h), once in source and compiled for every SIMD target by
// Highway. Minima and maxima of bytes, so all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

struct MedianTable {
  const char* target;

  // One row of medians: out[i] is the median of the `side` x `side` numbers around rows[side /
  // 2][i], `step` of them to the next pixel. Beside its ends a row is as at its ends. `planes` has
  // room for MedianPlanes(side, count, step) bytes. REQUIRES: side is 3, 5 or 7.
  void (*median_row)(const uint8_t* const* rows, int side, size_t count, size_t step,
                     uint8_t* planes, uint8_t* out);
};

inline constexpr int kMostMedianSide = 7;

constexpr size_t MedianPlanes(int side, size_t count, size_t step) {
  return static_cast<size_t>(side) * (count + 2 * (static_cast<size_t>(side) / 2) * step);
}

// As kernels::Resample().
const MedianTable& Medians();

}  // namespace feedwater::server::kernels
