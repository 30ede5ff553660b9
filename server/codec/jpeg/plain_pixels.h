// The formulas of upsampling and colour, a sample at a time: what runs where there is no SIMD, and
// what the vector code is held against.
#pragma once

#include <cstdint>
#include <cstring>

namespace feedwater::server::jpeg {

template <class Sample>
void DoubleWidthPlain(Sample sample, int first, int width, int x0, int count, int even_bias,
                      int odd_bias, int down, uint8_t* out) {
  for (int x = x0; x < x0 + count; ++x) {
    const int at = x >> 1, side = x % 2 == 0 ? at - 1 : at + 1;
    const int next = side < 0 || side == width ? at : side;
    const int sum = 3 * sample(at - first) + sample(next - first);
    out[x - x0] = static_cast<uint8_t>((sum + (x % 2 == 0 ? even_bias : odd_bias)) >> down);
  }
}

inline void UpsampleH2V1Plain(const uint8_t* in, int first, int width, int x0, int count,
                              uint8_t* out) {
  DoubleWidthPlain([in](int i) { return in[i]; }, first, width, x0, count, 1, 2, 2, out);
}

inline void UpsampleH2V2Plain(const uint8_t* near, const uint8_t* far, int first, int width, int x0,
                              int count, uint8_t* out) {
  DoubleWidthPlain([=](int i) { return 3 * near[i] + far[i]; }, first, width, x0, count, 8, 7, 4,
                   out);
}

inline void UpsampleH1V2Plain(const uint8_t* near, const uint8_t* far, bool below, size_t count,
                              uint8_t* out) {
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<uint8_t>((3 * near[i] + far[i] + (below ? 2 : 1)) >> 2);
}

// Every sample twice: pixels x0 .. x0 + count - 1 of a row whose sample number `first` is in[0].
inline void RepeatPlain(const uint8_t* in, int first, int x0, int count, uint8_t* out) {
  for (int x = x0; x < x0 + count; ++x) out[x - x0] = in[(x >> 1) - first];
}

inline void YccToRgbPlain(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count,
                          uint8_t* rgb) {
  const auto clip = [](int v) { return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v); };
  for (size_t i = 0; i < count; ++i) {
    const int b = cb[i] - 128, r = cr[i] - 128;
    rgb[3 * i] = clip(y[i] + ((91881 * r + 32768) >> 16));
    rgb[3 * i + 1] = clip(y[i] + ((-22554 * b - 46802 * r + 32768) >> 16));
    rgb[3 * i + 2] = clip(y[i] + ((116130 * b + 32768) >> 16));
  }
}

inline void GrayToRgbPlain(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; ++i) std::memset(rgb + 3 * i, y[i], 3);
}

}  // namespace feedwater::server::jpeg
