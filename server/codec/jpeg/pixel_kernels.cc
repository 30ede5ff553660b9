#include "server/codec/jpeg/pixel_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace feedwater::server::jpeg {
namespace {

// jidctint.c: 13 fraction bits in the constants, 2 more kept between the passes.
void Pass(const int32_t* in, int step, int down, int32_t* out) {
  const int32_t i0 = in[0], i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i4 = in[4 * step],
                i5 = in[5 * step], i6 = in[6 * step], i7 = in[7 * step];
  const int32_t even = (i2 + i6) * 4433;
  const int32_t t2 = even - i6 * 15137, t3 = even + i2 * 6270;
  const int32_t t0 = (i0 + i4) * 8192, t1 = (i0 - i4) * 8192;
  const int32_t e[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};
  const int32_t z5 = (i7 + i3 + i5 + i1) * 9633;
  const int32_t z1 = (i7 + i1) * -7373, z2 = (i5 + i3) * -20995;
  const int32_t z3 = (i7 + i3) * -16069 + z5, z4 = (i5 + i1) * -3196 + z5;
  const int32_t o[4] = {i1 * 12299 + z1 + z4, i3 * 25172 + z2 + z3, i5 * 16819 + z2 + z4,
                        i7 * 2446 + z1 + z3};
  const int32_t half = 1 << (down - 1);
  for (int k = 0; k < 4; ++k) {
    out[k * step] = (e[k] + o[k] + half) >> down;
    out[(7 - k) * step] = (e[k] - o[k] + half) >> down;
  }
}

bool TransformBlock(const int16_t* c, const uint16_t* quant, uint8_t* out, size_t stride) {
  int32_t a[64], b[64], d[64];
  for (int x = 0; x < 8; ++x) {
    int32_t sum = 0;
    for (int y = 0; y < 64; y += 8) {
      a[y + x] = c[y + x] * quant[y + x];
      sum += std::abs(a[y + x]);
    }
    if (sum > 5800) return false;
  }
  for (int x = 0; x < 8; ++x) Pass(a + x, 8, 11, b + x);
  for (int y = 0; y < 8; ++y) {
    Pass(b + 8 * y, 1, 18, d + 8 * y);
    for (int x = 0; x < 8; ++x) {
      const int32_t v = d[8 * y + x];
      if (v < -512 || v > 511) return false;
      out[y * stride + x] = static_cast<uint8_t>(std::clamp(v + 128, 0, 255));
    }
  }
  return true;
}

bool TransformRow(const int16_t* coefficients, BlockLists& lists, const uint16_t* quant,
                  uint8_t* out, size_t stride) {
  for (int kind = 0; kind < kBlockKinds; ++kind) {
    for (size_t i = 0; i < lists.count[kind]; ++i) {
      const size_t block = lists.blocks[kind][i];
      if (!TransformBlock(coefficients + 64 * block, quant, out + 8 * block, stride)) return false;
    }
  }
  return true;
}

// Sum, where three quarters of a sample and one quarter of its neighbour make four.
template <class Sample>
void UpsampleAlongRow(Sample sample, int first, int width, int x0, int count, int even_bias,
                      int odd_bias, int down, uint8_t* out) {
  for (int x = x0; x < x0 + count; ++x) {
    const int at = x >> 1, neighbour = x & 1 ? std::min(at + 1, width - 1) : std::max(at - 1, 0);
    const int sum = 3 * sample(at - first) + sample(neighbour - first);
    out[x - x0] = static_cast<uint8_t>((sum + (x & 1 ? odd_bias : even_bias)) >> down);
  }
}

void UpsampleH2V1(const uint8_t* in, int first, int width, int x0, int count, uint8_t* out) {
  UpsampleAlongRow([in](int i) { return in[i]; }, first, width, x0, count, 1, 2, 2, out);
}

void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int first, int width, int x0, int count,
                  uint8_t* out) {
  UpsampleAlongRow([=](int i) { return 3 * near[i] + far[i]; }, first, width, x0, count, 8, 7, 4,
                   out);
}

void UpsampleH1V2(const uint8_t* near, const uint8_t* far, bool below, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<uint8_t>((3 * near[i] + far[i] + (below ? 2 : 1)) >> 2);
}

void YccToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count, uint8_t* rgb) {
  const auto clip = [](int v) { return static_cast<uint8_t>(std::clamp(v, 0, 255)); };
  for (size_t i = 0; i < count; ++i) {
    const int b = cb[i] - 128, r = cr[i] - 128;
    rgb[3 * i] = clip(y[i] + ((91881 * r + 32768) >> 16));
    rgb[3 * i + 1] = clip(y[i] + ((-22554 * b - 46802 * r + 32768) >> 16));
    rgb[3 * i + 2] = clip(y[i] + ((116130 * b + 32768) >> 16));
  }
}

void GrayToRgb(const uint8_t* y, size_t count, uint8_t* rgb) {
  for (size_t i = 0; i < count; ++i) std::memset(rgb + 3 * i, y[i], 3);
}

}  // namespace

const PixelKernels& ActivePixelKernels() {
  static const PixelKernels kTable = {"plain",      TransformRow, UpsampleH2V1, UpsampleH2V2,
                                      UpsampleH1V2, YccToRgb,     GrayToRgb};
  return kTable;
}

}  // namespace feedwater::server::jpeg
