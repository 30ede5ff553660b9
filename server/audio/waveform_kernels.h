// The inner loops of resampler.h and of what is done to decoded samples, for every SIMD target
// (spectrum_kernels.h). Sums are of eight partial sums, whatever the vectors' width, so that all
// targets give equal bytes.
#pragma once

#include <cstddef>

namespace feedwater::server::kernels {

struct WaveformTable {
  const char* target;
  // Of `count` products, a multiple of 8.
  float (*weighted_sum)(const float* weights, const float* samples, int count);
  // out[i] = the mean of frame i's samples, added up in their order.
  void (*mean_of_channels)(const float* frames, int channels, size_t count, float* out);
  // out[i] = frames[i * channels].
  void (*one_channel)(const float* frames, int channels, size_t count, float* out);
  // Whether every number is finite.
  bool (*all_finite)(const float* numbers, size_t count);
};

const WaveformTable& Waveforms();

}  // namespace feedwater::server::kernels
