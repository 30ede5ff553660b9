// The inner loops of warp.h, once in source and compiled for every SIMD target by Highway, which
// chooses at run time (codec/resample_kernels.h). Coordinates are float64 without fused operations,
// pixels are integers, so all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

// Places in the source, of up to kWarpBlock neighbouring pixels of a result: 15 binary places. A
// pixel reaches from its number to the next one.
inline constexpr size_t kWarpBlock = 256;
inline constexpr int kWarpBits = 15;

struct WarpPlaces {
  alignas(64) int32_t x[kWarpBlock];
  alignas(64) int32_t y[kWarpBlock];
};

// (a x + b y + c) / (g x + h y + i), once more for y, then what is added at each place.
struct WarpRow {
  double x_step = 0, x_start = 0, y_step = 0, y_start = 0, w_step = 0, w_start = 1;
  bool is_affine = true;
  const float* add_x = nullptr;  // in pixels, for each pixel of the result; or null
  const float* add_y = nullptr;
};

struct WarpSource {
  const uint8_t* pixels = nullptr;
  int width = 0, height = 0;
  uint8_t fill[4] = {};
};

struct WarpTable {
  const char* target;
  // Where the pixels at first .. first + count - 1 of a row come from.
  void (*places)(const WarpRow& row, size_t first, size_t count, WarpPlaces* places);
  // By number of channels (1, 3, 4): `count` pixels at `out`.
  void (*bilinear[5])(const WarpSource& source, const WarpPlaces& places, size_t count,
                      uint8_t* out);
};

// As kernels::Resample().
const WarpTable& Warps();

}  // namespace feedwater::server::kernels
