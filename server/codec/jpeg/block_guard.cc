#include "server/codec/jpeg/block_guard.h"

#include <algorithm>

namespace feedwater::server::jpeg {
namespace {

void Pass(const int32_t* in, int step, int down, int32_t* out) {
  const int32_t i0 = in[0], i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i4 = in[4 * step],
                i5 = in[5 * step], i6 = in[6 * step], i7 = in[7 * step];
  const int32_t z = (i2 + i6) * 4433;
  const int32_t t2 = z - i6 * 15137, t3 = z + i2 * 6270;
  const int32_t t0 = (i0 + i4) * 8192, t1 = (i0 - i4) * 8192;
  const int32_t even[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};
  const int32_t z5 = (i7 + i3 + i5 + i1) * 9633;
  const int32_t z1 = (i7 + i1) * -7373, z2 = (i5 + i3) * -20995;
  const int32_t z3 = (i7 + i3) * -16069 + z5, z4 = (i5 + i1) * -3196 + z5;
  const int32_t odd[4] = {i1 * 12299 + z1 + z4, i3 * 25172 + z2 + z3, i5 * 16819 + z2 + z4,
                          i7 * 2446 + z1 + z3};
  const int32_t half = 1 << (down - 1);
  for (int k = 0; k < 4; ++k) {
    out[k * step] = (even[k] + odd[k] + half) >> down;
    out[(7 - k) * step] = (even[k] - odd[k] + half) >> down;
  }
}

}  // namespace

bool TransformBlockPlain(const int16_t* coefficients, const uint16_t* quant, uint8_t* samples,
                         int stride) {
  int32_t in[64], columns[64], values[64];
  for (int x = 0; x < 8; ++x) {
    int32_t sum = 0;
    for (int i = x; i < 64; i += 8) {
      in[i] = coefficients[i] * quant[i];
      sum += std::abs(in[i]);
    }
    if (sum > kMaxColumnSum) return false;
  }
  for (int x = 0; x < 8; ++x) Pass(in + x, 8, 11, columns + x);
  for (int y = 0; y < 8; ++y) Pass(columns + 8 * y, 1, 18, values + 8 * y);
  const auto [low, high] = std::minmax_element(values, values + 64);
  if (*low < kMinValue || *high > kMaxValue) return false;
  if (samples == nullptr) return true;
  for (int i = 0; i < 64; ++i) {
    samples[i / 8 * stride + i % 8] = static_cast<uint8_t>(std::clamp(values[i] + 128, 0, 255));
  }
  return true;
}

}  // namespace feedwater::server::jpeg
