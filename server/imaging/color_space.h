// Conversions between colour spaces that are rarely asked for, in place: channel c of `count`
// pixels at planes + c * plane. Lab reads and writes whole vectors: up to kPointPadding
// (point_kernels.h) more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server {

// Pillow's convert("YCbCr"): JPEG's, in 6 bits.
void ToYcbcr(uint8_t* planes, size_t plane, size_t count);

// OpenCV's COLOR_RGB2Lab: CIE L*a*b* of sRGB under D65, L scaled to 0..255, a and b moved by 128.
void ToLab(uint8_t* planes, size_t plane, size_t count);
// OpenCV's COLOR_Lab2RGB.
void FromLab(uint8_t* planes, size_t plane, size_t count);

}  // namespace feedwater::server
