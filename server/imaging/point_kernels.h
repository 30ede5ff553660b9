// The inner loops of a point program (point_program.h), once in source and compiled for every SIMD
// target by Highway (codec/resample_kernels.h says how one is chosen). All targets give equal
// bytes: each loop is integer arithmetic, or float32 without fused operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

// What planes are rounded up to in size: kernels of planes read and write whole vectors.
inline constexpr size_t kPointPadding = 64;

// value * whole + ((value * fraction + offset) >> 16), cut off at 0 and 255.
struct Line {
  int16_t whole = 0, fraction = 0;
  int32_t offset = 0;

  uint8_t At(int value) const {
    return static_cast<uint8_t>(
        std::clamp(value * whole + ((value * fraction + offset) >> 16), 0, 255));
  }
};

// (value ^ (value >= threshold ? flip : 0)) & keep.
struct Bits {
  uint8_t threshold = 0, flip = 0, keep = 255;

  uint8_t At(int value) const {
    return static_cast<uint8_t>((value ^ (value >= threshold ? flip : 0)) & keep);
  }
};

struct PointTable {
  const char* target;
  bool fast_look_up;  // look_up costs no more than line and bits do

  // Of values one after the other; `out` may be `in`.
  void (*look_up)(const uint8_t* table, const uint8_t* in, size_t count, uint8_t* out);
  void (*line)(const Line& line, const uint8_t* in, size_t count, uint8_t* out);
  void (*bits)(const Bits& bits, const uint8_t* in, size_t count, uint8_t* out);
  uint64_t (*sum)(const uint8_t* in, size_t count);
  // Lowers *low and raises *high.
  void (*extremes)(const uint8_t* in, size_t count, uint8_t* low, uint8_t* high);

  // Of colours: channel c at planes + c * plane, changed in place.
  // Pillow's "L", ITU-R 601 in 16 bits, to `out`.
  void (*luma)(const uint8_t* planes, size_t plane, size_t count, uint8_t* out);
  // Pillow's ImageEnhance.Color: luma + factor * (value - luma), in float32 or by a line that gives
  // the same for all differences from -255 to 255 (only its offset is not looked at).
  void (*saturate)(float factor, uint8_t* planes, size_t plane, size_t count);
  void (*saturate_by_line)(const Line& line, uint8_t* planes, size_t plane, size_t count);
  // Pillow's RGB -> HSV -> RGB with `shift` added to the 8-bit hue in between.
  void (*shift_hue)(uint8_t shift, uint8_t* planes, size_t plane, size_t count);
  // To Pillow's "HSV".
  void (*to_hsv)(uint8_t* planes, size_t plane, size_t count);
};

// As kernels::Resample().
const PointTable& Points();

}  // namespace feedwater::server::kernels
