// What Pillow does to one pixel, in its own numbers. The kernels give the same for many at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace feedwater::server::pillow {

// ImageEnhance: from `base` towards `value` and beyond, cut off towards zero, saturated.
inline uint8_t Blend(int base, int value, float factor) {
  const float mixed = static_cast<float>(base) + factor * static_cast<float>(value - base);
  if (mixed <= 0.0f) return 0;
  if (mixed >= 255.0f) return 255;
  return static_cast<uint8_t>(mixed);
}

// The conversion to "L": ITU-R 601, 16 bits.
inline uint8_t Luma(int r, int g, int b) {
  return static_cast<uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

struct Hsv {
  uint8_t hue, saturation, value;
};

inline Hsv ToHsv(int r, int g, int b) {
  const int high = std::max({r, g, b}), low = std::min({r, g, b});
  if (high == low) return {0, 0, static_cast<uint8_t>(high)};
  const float range = static_cast<float>(high - low);
  const float rc = static_cast<float>(high - r) / range, gc = static_cast<float>(high - g) / range,
              bc = static_cast<float>(high - b) / range;
  const float sixths = r == high   ? bc - gc
                       : g == high ? static_cast<float>(2.0 + rc - bc)
                                   : static_cast<float>(4.0 + gc - rc);
  const double turns = sixths / 6.0 + 1.0;  // from 5/6 to 11/6
  const float h = static_cast<float>(turns >= 1.0 ? turns - 1.0 : turns);
  return {static_cast<uint8_t>(static_cast<int>(h * 255.0)),
          static_cast<uint8_t>(static_cast<int>(range / static_cast<float>(high) * 255.0)),
          static_cast<uint8_t>(high)};
}

// To what shift_hue changes a pixel: RGB -> HSV -> RGB with `shift` added to the hue.
inline void ShiftHue(uint8_t shift, uint8_t* r, uint8_t* g, uint8_t* b) {
  const Hsv hsv = ToHsv(*r, *g, *b);
  const uint8_t hue = static_cast<uint8_t>(hsv.hue + shift), v = hsv.value;
  const auto round = [](double value) { return static_cast<uint8_t>(value + 0.5); };
  const double turn = static_cast<float>(hue) * 6.0 / 255.0;
  const int sector = static_cast<int>(turn);  // 6 is 0 again
  const float f = static_cast<float>(turn - sector);
  const float s = static_cast<float>(hsv.saturation) / 255.0f;
  const uint8_t p = round(v * (1.0 - s)), q = round(v * (1.0 - s * f)),
                t = round(v * (1.0 - s * (1.0 - f)));
  const uint8_t colours[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  const uint8_t* colour = colours[sector % 6];
  *r = colour[0], *g = colour[1], *b = colour[2];
}

}  // namespace feedwater::server::pillow
