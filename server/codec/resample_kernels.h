// The inner loops of the antialiased resize, once in source and compiled for every SIMD target by
// Highway; the best one that the CPU has is chosen at run time. They are integer arithmetic, so all
// targets give equal bytes.
//
// Sizes: a band is up to 16 rows of decoded pixels. Transposed into columns of 16 samples each, the
// horizontal filter is the same sequence of contiguous multiply-adds for every pixel, whatever the
// scale: no gathers. It goes strip by strip, so that columns stay in the innermost cache, and turns
// its results back into rows in registers.
//
// Intermediate samples have 6 binary places after a filter and 7 before one ("sample << 7"), in
// int16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

inline constexpr int kBandRows = 16;
inline constexpr size_t kPad =
    64;  // samples that a kernel may write behind the end of an intermediate buffer

// How a band is filtered along x.
struct AxisWeights {
  const int32_t* start = nullptr;    // per output, in samples, ascending
  const int32_t* weights = nullptr;  // per output `taps`
  int taps = 0, channels = 0;
  int count = 0;       // outputs; narrow: 8 or more
  size_t samples = 0;  // in a row of the band
  bool reversed = false;
  size_t plane = 0;
};

// A weight (one is 1 << 14) as filter_band_narrow wants it: twice, for one look to fill a vector
// with, and negative, since the samples are.
inline int32_t PairedWeight(int16_t weight) {
  const auto paired = static_cast<uint16_t>(-weight);
  return static_cast<int32_t>(paired | static_cast<uint32_t>(paired) << 16);
}

inline constexpr size_t kStripColumns = 512;
inline constexpr size_t kStripSamples = kStripColumns * kBandRows;
inline constexpr size_t WideScratchSamples(size_t samples, size_t filtered) {
  return ((samples + 31) / 32 * 32 + filtered) * kBandRows;
}

struct ResampleTable {
  const char* target;

  // Filters up to 16 rows along x: out[r][c * plane + x], samples << 7, x counted from the right
  // end if `reversed`. `scratch` is aligned to 64 bytes. Narrow: taps <= 16; weights are
  // PairedWeights. `scratch` has kStripSamples.
  void (*filter_band_narrow)(const uint8_t* const* rows, const AxisWeights& axis, int16_t* scratch,
                             int16_t* const* out);
  // Wide: `scratch` has WideScratchSamples().
  void (*filter_band_wide)(const uint8_t* const* rows, const AxisWeights& axis, int16_t* scratch,
                           int16_t* const* out);

  // out[i] = the weighted sum of rows[k][i] (samples << 7), rounded to uint8. count is a multiple
  // of 32.
  void (*filter_rows)(const int16_t* const* rows, const int16_t* weights, int taps, size_t count,
                      uint8_t* out);

  // sums[i] += (row[i] at 2 binary places) * weight; and the rounded result of such sums. count is
  // a multiple of 32.
  void (*accumulate_row)(const int16_t* row, int32_t weight, size_t count, int32_t* sums);
  void (*finish_row)(const int32_t* sums, size_t count, uint8_t* out);
};

// The table for this CPU. Cheap; a test that restricts Highway's targets sees the change at its
// next call.
const ResampleTable& Resample();

}  // namespace feedwater::server::kernels
