#include "server/codec/jpeg/forward_kernels.h"

#include <algorithm>
#include <cstring>

// As in pixel_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/jpeg/forward_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "server/codec/jpeg/idct-inl.h"
#include "server/codec/jpeg/plain_forward.h"
#include "server/codec/jpeg/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

constexpr auto RgbToYcc = RgbToYccPlain;
constexpr auto Halve = HalvePlain;

void ForwardRow(const uint8_t* samples, size_t stride, size_t blocks, const Divisors& divisors,
                int16_t* coefficients) {
  for (size_t i = 0; i < blocks; ++i) {
    ForwardBlockPlain(samples + 8 * i, stride, divisors.half, divisors.reciprocal, divisors.scale,
                      coefficients + kBlockSamples * i);
  }
}

#else

using D8Half = hn::Half<D8>;
using DU16 = hn::Repartition<uint16_t, D16>;

// Sixteen-bit weighted sums of two pairs of channels, as bytes.
HWY_INLINE hn::Vec<D8Half> Weighted(V16 a, V16 b, V16 weights_ab, V16 c, V16 d, V16 weights_cd,
                                    int rounding) {
  const D16 d16;
  const V32 half = hn::Set(D32(), rounding);
  const auto sum = [&](V16 ab, V16 cd) HWY_ATTR {
    return hn::ShiftRight<16>(AddDotPairs(AddDotPairs(half, ab, weights_ab), cd, weights_cd));
  };
  const V32 lower = sum(hn::InterleaveLower(d16, a, b), hn::InterleaveLower(d16, c, d));
  const V32 upper = sum(hn::InterleaveUpper(d16, a, b), hn::InterleaveUpper(d16, c, d));
  return hn::DemoteTo(D8Half(), hn::ReorderDemote2To(d16, lower, upper));
}

void RgbToYcc(const uint8_t* rgb, size_t count, uint8_t* y, uint8_t* cb, uint8_t* cr) {
  const D16 d16;
  const D8 d8;
  const D8Half half;
  const V16 green_red = SetPairs(d16, 19595, 19235), blue_green = SetPairs(d16, 19235, 7471);
  const V16 to_cb = SetPairs(d16, -11059, -21709), to_cr = SetPairs(d16, -27439, -5329);
  const V16 whole = SetPairs(d16, 16384, 16384);
  constexpr int kMiddle = (128 << 16) + 32767;
  const size_t n = hn::Lanes(d8);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    V8 red, green, blue;
    hn::LoadInterleaved3(d8, rgb + 3 * i, red, green, blue);
    for (size_t part = 0; part < 2; ++part) {
      const auto wide = [&](V8 v) HWY_ATTR {
        return hn::PromoteTo(d16, part == 0 ? hn::LowerHalf(half, v) : hn::UpperHalf(half, v));
      };
      const V16 r = wide(red), g = wide(green), b = wide(blue);
      const size_t at = i + part * n / 2;
      hn::StoreU(Weighted(r, g, green_red, g, b, blue_green, 32768), half, y + at);
      hn::StoreU(Weighted(r, g, to_cb, b, b, whole, kMiddle), half, cb + at);
      hn::StoreU(Weighted(g, b, to_cr, r, r, whole, kMiddle), half, cr + at);
    }
  }
  RgbToYccPlain(rgb + 3 * i, count - i, y + i, cb + i, cr + i);
}

void Halve(const uint8_t* above, const uint8_t* below, size_t count, uint8_t* out) {
  const D16 d16;
  const D8 d8;
  const D8Half half;
  const V16 rounding = SetPairs(d16, 1, 2);
  const auto byte = hn::Set(DU16(), uint16_t{255});
  const size_t n = hn::Lanes(d16);
  for (size_t i = 0; i < count; i += n) {
    const auto pairs = [&](const uint8_t* row) HWY_ATTR {
      const auto two = hn::BitCast(DU16(), hn::LoadU(d8, row + 2 * i));
      return hn::BitCast(d16, hn::Add(hn::And(two, byte), hn::ShiftRight<8>(two)));
    };
    const V16 sum = hn::Add(hn::Add(pairs(above), pairs(below)), rounding);
    hn::StoreU(hn::DemoteTo(half, hn::ShiftRight<2>(sum)), half, out + i);
  }
}

// libjpeg's jfdctint across vectors: in[k] holds the k-th inputs, out[k] the k-th outputs. The odd
// half is the transpose of the inverse transform's.
template <bool kFirst>
HWY_INLINE void ForwardPass(const V16* in, V16* out) {
  constexpr int kDown = kFirst ? 11 : 15;
  const D16 d;
  V16 sum[4], difference[4];
  for (int k = 0; k < 4; ++k) {
    sum[k] = hn::Add(in[k], in[7 - k]);
    difference[k] = hn::Sub(in[k], in[7 - k]);
  }
  const V16 outer = hn::Add(sum[0], sum[3]), inner = hn::Add(sum[1], sum[2]);
  const V16 even[2] = {hn::Sub(sum[0], sum[3]), hn::Sub(sum[1], sum[2])};
  const auto scaled = [](V16 v) HWY_ATTR {
    if constexpr (kFirst) return hn::ShiftLeft<2>(v);
    return hn::ShiftRight<2>(hn::Add(v, hn::Set(D16(), 2)));
  };
  out[0] = scaled(hn::Add(outer, inner));
  out[4] = scaled(hn::Sub(outer, inner));
  const V32 rounding = hn::Set(D32(), 1 << (kDown - 1));
  const auto lower = [&](V16 a, V16 b) HWY_ATTR { return hn::InterleaveLower(d, a, b); };
  const auto upper = [&](V16 a, V16 b) HWY_ATTR { return hn::InterleaveUpper(d, a, b); };
  const auto rounded = [&](V32 low, V32 high) HWY_ATTR {
    return hn::ReorderDemote2To(d, hn::ShiftRight<kDown>(low), hn::ShiftRight<kDown>(high));
  };
  const V16 even_low = lower(even[0], even[1]), even_high = upper(even[0], even[1]);
  const auto dot = [&](V16 factors) HWY_ATTR {
    return rounded(AddDotPairs(rounding, even_low, factors),
                   AddDotPairs(rounding, even_high, factors));
  };
  out[2] = dot(SetPairs(d, k0541 + k0765, k0541));
  out[6] = dot(SetPairs(d, k0541, k0541 - k1847));
  const V16 odd_low[2] = {lower(difference[0], difference[1]), lower(difference[2], difference[3])};
  const V16 odd_high[2] = {upper(difference[0], difference[1]),
                           upper(difference[2], difference[3])};
  for (int i = 0; i < 4; ++i) {
    const V16 first = SetPairs(d, kOdd[i][0], kOdd[i][1]),
              second = SetPairs(d, kOdd[i][2], kOdd[i][3]);
    out[2 * i + 1] =
        rounded(AddDotPairs(AddDotPairs(rounding, odd_low[0], first), odd_low[1], second),
                AddDotPairs(AddDotPairs(rounding, odd_high[0], first), odd_high[1], second));
  }
}

HWY_INLINE V16 Quantised(V16 value, const Divisors& divisors, int row) {
  const D16 d;
  const DU16 du;
  const auto table = [&](const uint16_t* of) HWY_ATTR { return hn::LoadDup128(du, of + 8 * row); };
  const auto size = hn::Add(hn::BitCast(du, hn::Abs(value)), table(divisors.half));
  const auto quotient =
      hn::MulHigh(hn::MulHigh(size, table(divisors.reciprocal)), table(divisors.scale));
  const V16 sign = hn::ShiftRight<15>(value);
  return hn::Sub(hn::Xor(hn::BitCast(d, quotient), sign), sign);
}

void ForwardRow(const uint8_t* samples, size_t stride, size_t blocks, const Divisors& divisors,
                int16_t* coefficients) {
  const D16 d16;
  const D8Half half;
  static_assert(kBlocks <= kForwardBlocks);
  for (size_t i = 0; i < blocks; i += kBlocks) {
    V16 rows[8], columns[8];
    for (size_t y = 0; y < 8; ++y) {
      rows[y] = hn::Sub(hn::PromoteTo(d16, hn::LoadU(half, samples + y * stride + 8 * i)),
                        hn::Set(d16, 128));
    }
    TransposeHalf<false>(rows, columns);
    TransposeHalf<true>(rows, columns + 4);
    ForwardPass<true>(columns, rows);
    TransposeHalf<false>(rows, columns);
    TransposeHalf<true>(rows, columns + 4);
    ForwardPass<false>(columns, rows);
    for (int k = 0; k < 8; ++k) {
      HWY_ALIGN int16_t row[8 * kBlocks];
      hn::Store(Quantised(rows[k], divisors, k), d16, row);
      for (size_t b = 0; b < kBlocks; ++b) {
        std::memcpy(coefficients + kBlockSamples * (i + b) + 8 * k, row + 8 * b,
                    8 * sizeof(int16_t));
      }
    }
  }
}

#endif

const ForwardKernels* ForwardKernelTable() {
  static const ForwardKernels kTable = {hwy::TargetName(HWY_TARGET), RgbToYcc, Halve, ForwardRow};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::jpeg {

HWY_EXPORT(ForwardKernelTable);

const ForwardKernels& ActiveForwardKernels() { return *HWY_DYNAMIC_DISPATCH(ForwardKernelTable)(); }

Divisors::Divisors(const uint16_t* steps) {
  for (int i = 0; i < kBlockSamples; ++i) {
    // floor(n / divisor) is floor(n * reciprocal / 2^(16 + bits)) for all n below 2^15, since
    // 2^(bits + 1) is not below the divisor.
    const uint32_t divisor = 8u * steps[i];
    int bits = 0;
    while ((2u << bits) < divisor) ++bits;
    half[i] = static_cast<uint16_t>(divisor / 2);
    reciprocal[i] = static_cast<uint16_t>(((uint64_t{1} << (16 + bits)) + divisor - 1) / divisor);
    scale[i] = static_cast<uint16_t>(1 << (16 - bits));
  }
}

}  // namespace feedwater::server::jpeg
#endif
