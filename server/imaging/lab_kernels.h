// Between RGB and CIE Lab of 8 bits (color_space.h): the inner loops, once in source and compiled
// for every SIMD target by Highway. Integers and exact divisions, so all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::kernels {

// OpenCV's tables of RGB2Lab_b: gamma in 3 more bits, cube roots in 15; and of its way back, which
// has XYZ in 14 bits and linear RGB in 12.
struct LabTables {
  static constexpr int kGammaBits = 3, kBits = 12, kRootBits = kBits + kGammaBits;
  static constexpr int kRoots = 256 * 3 / 2 * (1 << kGammaBits);
  static constexpr int kBaseBits = 14, kBase = 1 << kBaseBits;
  static constexpr int kInverseGammas = 1 << 12, kBackBits = kBits + kBaseBits - 12;

  LabTables();

  int32_t gamma[256], root[kRoots];
  int32_t to_xyz[3][3];  // result, channel
  int32_t y[256], root_of_y[256], inverse_gamma[kInverseGammas];
  int32_t to_rgb[3][3];
};

struct LabTable {
  const char* target;

  // In place: channel c of `count` pixels at planes + c * plane. Whole vectors are read and
  // written: up to kPointPadding (point_kernels.h) more.
  void (*to_lab)(const LabTables& tables, uint8_t* planes, size_t plane, size_t count);
  void (*from_lab)(const LabTables& tables, uint8_t* planes, size_t plane, size_t count);
};

// As kernels::Resample().
const LabTable& Lab();

}  // namespace feedwater::server::kernels
