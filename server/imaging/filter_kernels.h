// The inner loops of filter.h, once in source and compiled for every SIMD target by Highway, which
// chooses at run time (codec/resample_kernels.h). Integers, and floats without fused operations, so
// all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

// Weights of a filter that is the same on both sides, from its middle outwards: radius + 1 of them.
// As integers one is 1 << 15, and 32767 stands for it too.
template <typename T>
struct SymmetricWeights {
  const T* weights = nullptr;
  int radius = 0;
};

struct FilterTable {
  const char* target;

  // out[i] = pixels[i] << 6.
  void (*widen)(const uint8_t* pixels, size_t count, int16_t* out);
  // out[i] = the weighted sum of row[i - k * step] and row[i + k * step]. `row` reaches radius *
  // step further on both sides. May write up to kFilterPad numbers more.
  void (*along_row)(const int16_t* row, size_t count, size_t step, SymmetricWeights<int16_t> filter,
                    int16_t* out);
  void (*along_row_f32)(const float* row, size_t count, size_t step, SymmetricWeights<float> filter,
                        float* out);
  // The same over rows[0 .. 2 * radius], whose middle is rows[radius]; from 6 binary places to
  // whole numbers.
  void (*across_rows)(const int16_t* const* rows, size_t count, SymmetricWeights<int16_t> filter,
                      uint8_t* out);
  void (*across_rows_f32)(const float* const* rows, size_t count, SymmetricWeights<float> filter,
                          float* out);

  // out[i] = the mean of rows[0 .. rows - 1][i], rounded. `number` is odd, at most kMostRows.
  void (*mean_rows)(const uint8_t* const* rows, int number, size_t count, uint8_t* out);

  // Pillow's SMOOTH of the middle row of three, then from there to the pixel itself by `factor`, as
  // Pillow's ImageEnhance. `step` numbers lie before and behind the `count` of each row.
  void (*sharpen)(const uint8_t* const* rows, size_t count, size_t step, float factor,
                  uint8_t* out);

  // Each value through four tables at once, bilinear between them: four[offsets[i] + in[i]] has
  // what the upper left, upper right, lower left and lower right table say, the first one lowest;
  // `shares[i]` is that of the right ones, `down` that of the lower ones. Rounded half to even.
  void (*mix_tables)(const int32_t* four, const int32_t* offsets, const float* shares, float down,
                     const uint8_t* in, size_t count, uint8_t* out);
};

inline constexpr int kMostRows = 63;
inline constexpr size_t kFilterPad = 64;  // numbers that may be read and written behind a buffer

// As kernels::Resample().
const FilterTable& Filters();

}  // namespace feedwater::server::kernels
