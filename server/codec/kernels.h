// The inner loops, once in source and compiled for every SIMD target by Highway; the best one that
// the CPU has is chosen at run time. Each is integer arithmetic, or float without fused operations,
// so all targets give equal bytes.
//
// Sizes: a band is up to 16 rows of decoded pixels. Transposed into columns of 16 samples each, the
// horizontal filter is the same sequence of contiguous multiply-adds for every pixel, whatever the
// scale: no gathers, no shuffles.
//
// Intermediate samples have 6 binary places after a filter and 7 before one ("sample << 7"), in
// int16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

inline constexpr int kBandRows = 16;
inline constexpr int kMaxChannels = 4;
inline constexpr size_t kPad =
    64;  // samples that a kernel may write behind the end of an intermediate buffer

struct Table {
  const char* target;

  // columns[i * 16 + r] = rows[r][i] << shift, for i < count rounded up to 32. Reads exactly
  // `count` bytes of each row.
  void (*transpose)(const uint8_t* const* rows, size_t count, int shift, int16_t* columns);

  // Filters across columns: out[c * plane * 16 + x * 16 + r], samples << 7, x counted from the
  // right end if `reversed`. start[x] counts pixels of `channels` columns. Narrow: samples << 7 in,
  // taps <= 8. Wide: samples << 0 in.
  void (*filter_columns_narrow)(const int16_t* columns, int channels, const int32_t* start,
                                const int16_t* weights, int taps, int count, bool reversed,
                                size_t plane, int16_t* out);
  void (*filter_columns_wide)(const int16_t* columns, int channels, const int32_t* start,
                              const int32_t* weights, int taps, int count, bool reversed,
                              size_t plane, int16_t* out);

  // rows[r][i] = columns[i * 16 + r] for r < kBandRows; count is a multiple of 8.
  void (*untranspose)(const int16_t* columns, size_t count, int16_t* const* rows);

  // out[i] = the weighted sum of rows[k][i] (samples << 7), rounded to uint8. count is a multiple
  // of 32.
  void (*filter_rows)(const int16_t* const* rows, const int16_t* weights, int taps, size_t count,
                      uint8_t* out);

  // sums[i] += (row[i] at 2 binary places) * weight; and the rounded result of such sums. count is
  // a multiple of 32.
  void (*accumulate_row)(const int16_t* row, int32_t weight, size_t count, int32_t* sums);
  void (*finish_row)(const int32_t* sums, size_t count, uint8_t* out);

  // Interleaved pixels to planes (plane c at out + c * plane) and back.
  void (*deinterleave3)(const uint8_t* pixels, size_t count, size_t plane, uint8_t* out);
  void (*interleave3_u8)(const uint8_t* planes, size_t plane, size_t count, uint8_t* out);
  void (*interleave3_u16)(const uint16_t* planes, size_t plane, size_t count, uint16_t* out);
  void (*interleave3_f32)(const float* planes, size_t plane, size_t count, float* out);

  // (value - mean) * scale, in float32, then rounded to nearest even for the 16 bit types.
  void (*to_f32)(const uint8_t* in, size_t count, float mean, float scale, float* out);
  void (*to_f16)(const uint8_t* in, size_t count, float mean, float scale, uint16_t* out);
  void (*to_bf16)(const uint8_t* in, size_t count, float mean, float scale, uint16_t* out);
};

// The table for this CPU. Cheap; a test that restricts Highway's targets sees the change at its
// next call.
const Table& Active();

}  // namespace feedwater::server::kernels
