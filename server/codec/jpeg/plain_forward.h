// The way into a JPEG, a sample at a time: what runs where there is no SIMD, and what the vector
// code is held against. libjpeg-turbo's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace feedwater::server::jpeg {

inline void RgbToYccPlain(const uint8_t* rgb, size_t count, uint8_t* y, uint8_t* cb, uint8_t* cr) {
  constexpr int kMiddle = (128 << 16) + 32767;
  for (size_t i = 0; i < count; ++i) {
    const int r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
    y[i] = static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
    cb[i] = static_cast<uint8_t>((-11059 * r - 21709 * g + 32768 * b + kMiddle) >> 16);
    cr[i] = static_cast<uint8_t>((32768 * r - 27439 * g - 5329 * b + kMiddle) >> 16);
  }
}

inline void HalvePlain(const uint8_t* above, const uint8_t* below, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    const int sum = above[2 * i] + above[2 * i + 1] + below[2 * i] + below[2 * i + 1];
    out[i] = static_cast<uint8_t>((sum + 1 + static_cast<int>(i % 2)) >> 2);
  }
}

// jfdctint.c: inputs and outputs `step` apart.
inline void ForwardPassPlain(int32_t* at, int step, bool is_first) {
  int32_t sum[4], t[4];
  for (int k = 0; k < 4; ++k) {
    sum[k] = at[k * step] + at[(7 - k) * step];
    t[k] = at[k * step] - at[(7 - k) * step];
  }
  const int32_t t10 = sum[0] + sum[3], t13 = sum[0] - sum[3], t11 = sum[1] + sum[2],
                t12 = sum[1] - sum[2];
  const int down = is_first ? 11 : 15;
  const auto scaled = [&](int32_t v) { return is_first ? v * 4 : (v + 2) >> 2; };
  const auto rounded = [&](int32_t v) { return (v + (1 << (down - 1))) >> down; };
  const int32_t z1 = (t12 + t13) * 4433, z5 = (t[0] + t[1] + t[2] + t[3]) * 9633;
  const int32_t z3 = (t[3] + t[1]) * -16069 + z5, z4 = (t[2] + t[0]) * -3196 + z5;
  const int32_t outer = (t[3] + t[0]) * -7373, inner = (t[2] + t[1]) * -20995;
  at[0] = scaled(t10 + t11);
  at[4 * step] = scaled(t10 - t11);
  at[2 * step] = rounded(z1 + t13 * 6270);
  at[6 * step] = rounded(z1 - t12 * 15137);
  at[7 * step] = rounded(t[3] * 2446 + outer + z3);
  at[5 * step] = rounded(t[2] * 16819 + inner + z4);
  at[3 * step] = rounded(t[1] * 25172 + inner + z3);
  at[1 * step] = rounded(t[0] * 12299 + outer + z4);
}

// One block; the tables are those of Divisors (forward_kernels.h).
inline void ForwardBlockPlain(const uint8_t* samples, size_t stride, const uint16_t* half,
                              const uint16_t* reciprocal, const uint16_t* scale, int16_t* out) {
  int32_t values[64];
  for (int i = 0; i < 64; ++i) values[i] = samples[(i / 8) * stride + i % 8] - 128;
  for (int y = 0; y < 8; ++y) ForwardPassPlain(values + 8 * y, 1, true);
  for (int x = 0; x < 8; ++x) ForwardPassPlain(values + x, 8, false);
  for (int i = 0; i < 64; ++i) {
    const uint32_t size = static_cast<uint32_t>(std::abs(values[i])) + half[i];
    const auto quotient = static_cast<int>(((size * reciprocal[i]) >> 16) * scale[i] >> 16);
    out[i] = static_cast<int16_t>(values[i] < 0 ? -quotient : quotient);
  }
}

}  // namespace feedwater::server::jpeg
