// Pillow's antialiased resampling (Resample.c) written out in double precision: what the product's
// integers are held against. Rounded to 8 bits after each pass, as Pillow does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "server/codec/image.h"

namespace feedwater::server::testing {

// `length` samples from `offset` on of an axis, in fractions of samples.
struct Box {
  double offset, length;
};

inline double PillowTriangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }
inline double PillowCubic(double x) {  // a = -0.5
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

// One line to `out` samples.
inline std::vector<uint8_t> PillowPass(const std::vector<uint8_t>& line, Box box, int out,
                                       bool cubic) {
  std::vector<uint8_t> result;
  const double scale = box.length / out, filter_scale = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * filter_scale;
  for (int i = 0; i < out; ++i) {
    const double centre = box.offset + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - support + 0.5));
    const int last =
        std::min(static_cast<int>(line.size()), static_cast<int>(centre + support + 0.5));
    double sum = 0, value = 0;
    for (int x = first; x < last; ++x) {
      const double at = (x - centre + 0.5) / filter_scale;
      const double weight = cubic ? PillowCubic(at) : PillowTriangle(at);
      sum += weight;
      value += weight * line[x];
    }
    result.push_back(static_cast<uint8_t>(std::clamp(std::floor(value / sum + 0.5), 0.0, 255.0)));
  }
  return result;
}

// The boxes of an image of `from` pixels, HWC with three channels; first along x, then along y.
inline std::vector<uint8_t> PillowResize(const std::vector<uint8_t>& pixels, Size from, Box box_x,
                                         Box box_y, Size to, bool cubic) {
  constexpr int kChannels = 3;
  std::vector<uint8_t> wide(static_cast<size_t>(to.width) * from.height * kChannels),
      result(static_cast<size_t>(to.width) * to.height * kChannels);
  for (int y = 0; y < from.height; ++y) {
    for (int c = 0; c < kChannels; ++c) {
      std::vector<uint8_t> line(from.width);
      for (int x = 0; x < from.width; ++x) line[x] = pixels[(y * from.width + x) * kChannels + c];
      const auto done = PillowPass(line, box_x, to.width, cubic);
      for (int x = 0; x < to.width; ++x) wide[(y * to.width + x) * kChannels + c] = done[x];
    }
  }
  const int row = to.width * kChannels;
  for (int i = 0; i < row; ++i) {
    std::vector<uint8_t> line(from.height);
    for (int y = 0; y < from.height; ++y) line[y] = wide[y * row + i];
    const auto done = PillowPass(line, box_y, to.height, cubic);
    for (int y = 0; y < to.height; ++y) result[y * row + i] = done[y];
  }
  return result;
}

inline std::vector<uint8_t> PillowResize(const std::vector<uint8_t>& pixels, Size from, Size to,
                                         bool cubic) {
  return PillowResize(pixels, from, {0, double(from.width)}, {0, double(from.height)}, to, cubic);
}

}  // namespace feedwater::server::testing
