// Kinds of parameters that several ops share, each as torchvision writes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "server/base/schema.h"
#include "server/codec/image.h"

namespace feedwater::server {

struct CropSize {  // 224 (a square) or [height, width]
  int64_t height = 0, width = 0;
};

struct ResizeSize {  // 256 (the shorter side; width is 0) or [height, width]
  int64_t height = 0, width = 0;
  bool is_shorter_side() const { return width == 0; }
};

struct Interval {  // [low, high], low <= high
  double low = 0, high = 0;
};

struct JitterFactor {  // 0.4 (from max(0, 1 - 0.4) to 1 + 0.4) or [low, high]
  double low = 1, high = 1;
  bool is_number = false;  // how it was written, for messages
};

struct HueShift {  // 0.1 (from -0.1 to 0.1) or [low, high], in turns of the colour circle
  double low = 0, high = 0;
};

struct Padding {  // 4 (all sides), [left and right, top and bottom] or [left, top, right, bottom]
  int64_t left = 0, top = 0, right = 0, bottom = 0;
};

struct FillColor {  // 0 (all channels) or one number per channel
  std::vector<double> values = {0};
};

// The value of each channel.
inline std::array<double, 4> FillOf(const FillColor& fill) {
  std::array<double, 4> values;
  for (size_t c = 0; c < values.size(); ++c)
    values[c] = fill.values[c < fill.values.size() ? c : 0];
  return values;
}

// bilinear (of images; masks are nearest) or one word for each image and mask of `in`
struct Interpolations {
  std::vector<Interpolation> values = {Interpolation::kBilinear};
  Interpolation For(size_t input) const {
    return values[input < values.size() ? input : values.size() - 1];
  }
};

struct Degrees {  // 30 (from -30 to 30) or [low, high]
  double low = 0, high = 0;
  bool is_number = false;  // how it was written, for messages
};

struct Shear {  // of x: 10 (from -10 to 10) or [low, high]; of x and y: four numbers; in degrees
  Degrees x, y;
};

struct OneOrTwo {  // 5 (both) or [5, 3]
  double first = 0, second = 0;
};

struct SquareMatrix {  // [[a, b], [c, d]]: rows, as many as they have numbers
  std::vector<std::vector<double>> rows;
};

FW_DECLARE_PARAM_TYPE(SquareMatrix);
FW_DECLARE_PARAM_TYPE(Degrees);
FW_DECLARE_PARAM_TYPE(Shear);
FW_DECLARE_PARAM_TYPE(OneOrTwo);
FW_DECLARE_PARAM_TYPE(CropSize);
FW_DECLARE_PARAM_TYPE(ResizeSize);
FW_DECLARE_PARAM_TYPE(Interval);
FW_DECLARE_PARAM_TYPE(JitterFactor);
FW_DECLARE_PARAM_TYPE(HueShift);
FW_DECLARE_PARAM_TYPE(Padding);
FW_DECLARE_PARAM_TYPE(FillColor);
FW_DECLARE_PARAM_TYPE(Interpolations);

inline constexpr int64_t kMaxSide = 32768;  // of an image that an op makes
inline constexpr size_t kMaxMatrixRows = 64;

}  // namespace feedwater::server
