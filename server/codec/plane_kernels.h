// The inner loops between planes, interleaved pixels and the types of a batch, once in source and
// compiled for every SIMD target by Highway (resample_kernels.h says how one is chosen). Each is
// integer arithmetic, or float without fused operations, so all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

inline constexpr int kMaxChannels = 4;

struct PlaneTable {
  const char* target;

  // Interleaved pixels to planes (plane c at out + c * plane) and back.
  void (*deinterleave3)(const uint8_t* pixels, size_t count, size_t plane, uint8_t* out);
  void (*interleave3_u8)(const uint8_t* planes, size_t plane, size_t count, uint8_t* out);
  void (*interleave3_u16)(const uint16_t* planes, size_t plane, size_t count, uint16_t* out);
  void (*interleave3_f32)(const float* planes, size_t plane, size_t count, float* out);

  // `count` pixels of `size` bytes each, the last one first.
  void (*mirror)(const uint8_t* pixels, size_t count, size_t size, uint8_t* out);

  // (value - mean) * scale, in float32, then rounded to nearest even for the 16 bit types.
  // `stream`: past the caches, where `out` begins a cache line; hwy::FlushStream makes it visible
  // to others.
  void (*to_f32)(const uint8_t* in, size_t count, float mean, float scale, bool stream, float* out);
  void (*to_f16)(const uint8_t* in, size_t count, float mean, float scale, bool stream,
                 uint16_t* out);
  void (*to_bf16)(const uint8_t* in, size_t count, float mean, float scale, bool stream,
                  uint16_t* out);
};

// As kernels::Resample().
const PlaneTable& Planes();

}  // namespace feedwater::server::kernels
