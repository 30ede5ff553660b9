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

// Of the wanted 32 bits: SIMD has no more, and of C's 64 those above them do not count.
int32_t Descale(int64_t sum, int down) {
  return static_cast<int32_t>(static_cast<uint32_t>(sum + (int64_t{1} << (down - 1)))) >> down;
}

// Four outputs, each the average of two of the eight; in[4] has no part in them.
void PassTo4(const int32_t* in, int step, int down, int32_t* out) {
  const int64_t i0 = in[0], i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i5 = in[5 * step],
                i6 = in[6 * step], i7 = in[7 * step];
  const int64_t z = i2 * 15137 - i6 * 6270;
  const int64_t even[2] = {i0 * 16384 + z, i0 * 16384 - z};
  const int64_t odd[2] = {i1 * 20995 + i3 * 7373 - i5 * 4926 - i7 * 4176,
                          i1 * 8697 - i3 * 17799 + i5 * 11893 - i7 * 1730};
  for (int k = 0; k < 2; ++k) {
    out[k * step] = Descale(even[k] + odd[k], down);
    out[(3 - k) * step] = Descale(even[k] - odd[k], down);
  }
}

// Two outputs, each the average of four, from in[0] and the odd inputs.
void PassTo2(const int32_t* in, int step, int down, int32_t* out) {
  const int64_t i1 = in[step], i3 = in[3 * step], i5 = in[5 * step], i7 = in[7 * step];
  const int64_t even = int64_t{in[0]} * 32768;
  const int64_t odd = i1 * 29692 - i3 * 10426 + i5 * 6967 - i7 * 5906;
  out[0] = Descale(even + odd, down);
  out[step] = Descale(even - odd, down);
}

// Whether the inputs with this number have a part in the transform to `side` samples.
bool IsUsed(int k, int side) {
  return side == 8 || k == 0 || (side == 4 && k != 4) || (side == 2 && k % 2 == 1);
}

}  // namespace

bool TransformBlockPlain(const int16_t* coefficients, const uint16_t* quant, int side,
                         uint8_t* samples, int stride) {
  int32_t in[64], columns[64], values[64];
  for (int x = 0; x < 8; ++x) {
    if (!IsUsed(x, side)) continue;
    int32_t sum = 0;
    for (int y = 0; y < 8; ++y) {
      if (!IsUsed(y, side)) continue;
      const int i = 8 * y + x;
      in[i] = coefficients[i] * quant[i];
      sum += std::abs(in[i]);
    }
    if (side > 1 && sum > kMaxColumnSum) return false;
    if (side == 8) Pass(in + x, 8, 11, columns + x);
    if (side == 4) PassTo4(in + x, 8, 12, columns + x);
    if (side == 2) PassTo2(in + x, 8, 13, columns + x);
  }
  for (int y = 0; y < side; ++y) {
    if (side == 8) Pass(columns + 8 * y, 1, 18, values + 8 * y);
    if (side == 4) PassTo4(columns + 8 * y, 1, 19, values + 4 * y);
    if (side == 2) PassTo2(columns + 8 * y, 1, 20, values + 2 * y);
    if (side == 1) values[0] = (in[0] + 4) >> 3;
  }
  const auto [low, high] = std::minmax_element(values, values + side * side);
  if (*low < kMinValue || *high > kMaxValue) return false;
  if (samples == nullptr) return true;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      samples[y * stride + x] =
          static_cast<uint8_t>(std::clamp(values[side * y + x] + 128, 0, 255));
    }
  }
  return true;
}

void ClipBlockPlain(const int16_t* coefficients, const uint16_t* quant, uint8_t* samples,
                    int stride) {
  int32_t in[64], columns[64], row[8];
  for (int i = 0; i < 64; ++i) in[i] = coefficients[i] * quant[i];
  for (int x = 0; x < 8; ++x) Pass(in + x, 8, 11, columns + x);
  for (int y = 0; y < 8; ++y) {
    Pass(columns + 8 * y, 1, 18, row);
    for (int x = 0; x < 8; ++x)
      samples[y * stride + x] = static_cast<uint8_t>(std::clamp(row[x] + 128, 0, 255));
  }
}

}  // namespace feedwater::server::jpeg
