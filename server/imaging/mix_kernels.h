// The inner loops that mix images by weights, once in source and compiled for every SIMD target by
// Highway, which chooses at run time (codec/resample_kernels.h). Products and sums are rounded one
// by one, so all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

struct MixTable {
  const char* target;
  // out[k] = weights[0] * images[0][k] + weights[1] * images[1][k] + ..., in float32 and in this
  // order, at most 255 and cut to a whole number. out may be one of the images. No weight is below
  // 0.
  void (*images)(const uint8_t* const* images, const float* weights, size_t images_count,
                 size_t count, uint8_t* out);
  // out = weight * own + rest * partner; bytes are rounded to the nearest, halves to the even one.
  // out may be own. Weights are from 0 to 1.
  void (*bytes)(const uint8_t* own, const uint8_t* partner, float weight, float rest, size_t count,
                uint8_t* out);
  void (*floats)(const float* own, const float* partner, float weight, float rest, size_t count,
                 float* out);
};

// As kernels::Resample().
const MixTable& Mixes();

}  // namespace feedwater::server::kernels
