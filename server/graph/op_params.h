// Kinds of parameters that several ops share, each as torchvision writes it.
#pragma once

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

struct Interpolations {  // bilinear (all fields) or one word per field of `in`
  std::vector<Interpolation> values = {Interpolation::kBilinear};
  Interpolation For(size_t input) const {
    return values[input < values.size() ? input : values.size() - 1];
  }
};

FW_DECLARE_PARAM_TYPE(CropSize);
FW_DECLARE_PARAM_TYPE(ResizeSize);
FW_DECLARE_PARAM_TYPE(Interval);
FW_DECLARE_PARAM_TYPE(JitterFactor);
FW_DECLARE_PARAM_TYPE(HueShift);
FW_DECLARE_PARAM_TYPE(Padding);
FW_DECLARE_PARAM_TYPE(FillColor);
FW_DECLARE_PARAM_TYPE(Interpolations);

inline constexpr int64_t kMaxSide = 32768;  // of an image that an op makes

}  // namespace feedwater::server
