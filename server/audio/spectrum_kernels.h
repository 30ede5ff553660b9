// The inner loops of spectrogram.h and decibels.h, once in source and compiled for every SIMD
// target by Highway, which chooses at run time (codec/resample_kernels.h). Each lane of a vector is
// a frame of its own, and no operation mixes lanes or fuses a multiplication with an addition: so
// all targets give equal bytes, however many lanes they have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/audio/fourier.h"

namespace feedwater::server::kernels {

inline constexpr size_t kMostLanes = 16;

// A matrix of few numbers that are not zero, by columns: column c has numbers for rows
// first[c] .. first[c] + count[c] - 1, one after the other from weights[start[c]] on.
struct BandedMatrix {
  const int32_t* first = nullptr;
  const int32_t* count = nullptr;
  const int32_t* start = nullptr;
  const float* weights = nullptr;
  int columns = 0;
};

struct FrameJob {
  const float* samples = nullptr;  // frame t begins at samples + t * hop
  int64_t hop = 0;
  const float* window = nullptr;  // fourier->size numbers
  const Fourier* fourier = nullptr;
  bool squared = true;   // |X|^2, else |X|
  BandedMatrix filters;  // columns: what comes out; rows: bins
  float* out = nullptr;  // of column c and frame t: out[c * out_stride + t]
  int64_t out_stride = 0;
};

// Floats of FrameJob's scratch, aligned to 64 bytes.
inline size_t FrameScratch(const Fourier& fourier) {
  const auto points = static_cast<size_t>(fourier.points) + 1;
  return kMostLanes * (2 * points + 2 * points + static_cast<size_t>(fourier.bins()) + 1);
}

struct SpectrumTable {
  const char* target;
  // Frames first .. first + count - 1.
  void (*frames)(const FrameJob& job, int64_t first, int64_t count, float* scratch);
  // out[i] = scale * log10(max(in[i], least)) + offset; out may be in.
  void (*decibels)(const float* in, size_t count, float scale, float least, float offset,
                   float* out);
  // out[i] = ln(in[i] + more); out may be in.
  void (*logarithms)(const float* in, size_t count, float more, float* out);
  // out[c * stride + t] = the sum over m of matrix[m * columns + c] * in[m * stride + t], in order.
  void (*transform)(const float* in, int rows, int64_t stride, const float* matrix, int columns,
                    int64_t count, float* out);
};

const SpectrumTable& Spectrums();

}  // namespace feedwater::server::kernels
