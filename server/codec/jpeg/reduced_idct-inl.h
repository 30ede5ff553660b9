// The inverse DCT to fewer samples (libjpeg's jidctred): a block of 8x8 coefficients becomes 4x4 or
// 2x2 samples, each the average of those that it stands for. Same layout, types and tricks as
// idct-inl.h; block_guard.h says why the guards suffice.
//
// The first dimension takes rows of coefficients as idct-inl.h does: eight columns of a block in
// each 128 bits, or, for blocks without coefficients beyond row or column 3, four columns of two
// blocks. The second one takes twice kBlocks blocks either way, so that no lane is idle.
#if defined(FEEDWATER_CODEC_JPEG_REDUCED_IDCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FEEDWATER_CODEC_JPEG_REDUCED_IDCT_INL_H_
#undef FEEDWATER_CODEC_JPEG_REDUCED_IDCT_INL_H_
#else
#define FEEDWATER_CODEC_JPEG_REDUCED_IDCT_INL_H_
#endif

#include "server/codec/jpeg/idct-inl.h"
#include "server/codec/jpeg/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether row k of the coefficients has a part in blocks of kSide samples a side.
template <int kSide>
constexpr bool UsesRow(int k) {
  return kSide == 8 || k == 0 || (kSide == 4 ? k != 4 : k % 2 == 1);
}

#if HWY_TARGET != HWY_SCALAR

// jidctred.c's constants, 13 fraction bits.
constexpr int k0211 = 1730, k0509 = 4176, k0601 = 4926, k0720 = 5906, k0850 = 6967, k1061 = 8697,
              k1272 = 10426, k1451 = 11893, k2172 = 17799, k3624 = 29692;

// The lower or upper half of `v` times 1 << kBits.
template <bool kUpper, int kBits>
HWY_INLINE V32 Scaled(V16 v) {
  const D16 d;
  const auto zero = hn::Zero(d);
  const auto high = kUpper ? hn::InterleaveUpper(d, zero, v) : hn::InterleaveLower(d, zero, v);
  return hn::ShiftRight<16 - kBits>(hn::BitCast(D32(), high));
}

template <bool kUpper>
HWY_INLINE V16 Pairs(V16 a, V16 b) {
  const D16 d;
  return kUpper ? hn::InterleaveUpper(d, a, b) : hn::InterleaveLower(d, a, b);
}

// One dimension to four outputs, for half of the lanes. Inputs from kInputs on are zero, in[4] is
// not looked at.
template <bool kUpper, int kInputs, int kDown, bool kRound>
HWY_INLINE void HalfTo4(const V16* in, V32* out) {
  const D16 d;
  V32 e[2], o[2];
  const V32 rounding = hn::Set(D32(), kRound ? 1 << (kDown - 1) : 0);
  const V16 in13 = Pairs<kUpper>(in[1], in[3]);
  o[0] = DotPairs(in13, SetPairs(d, k2562, k0899));
  o[1] = DotPairs(in13, SetPairs(d, k1061, -k2172));
  if constexpr (kInputs == 4) {
    const V16 in02 = Pairs<kUpper>(in[0], in[2]);
    e[0] = AddDotPairs(rounding, in02, SetPairs(d, 16384, k1847));
    e[1] = AddDotPairs(rounding, in02, SetPairs(d, 16384, -k1847));
  } else {
    const V32 first = hn::Add(Scaled<kUpper, 14>(in[0]), rounding);
    const V32 rest = DotPairs(Pairs<kUpper>(in[2], in[6]), SetPairs(d, k1847, -k0765));
    e[0] = hn::Add(first, rest);
    e[1] = hn::Sub(first, rest);
    const V16 in57 = Pairs<kUpper>(in[5], in[7]);
    o[0] = AddDotPairs(o[0], in57, SetPairs(d, -k0601, -k0509));
    o[1] = AddDotPairs(o[1], in57, SetPairs(d, k1451, -k0211));
  }
  for (int i = 0; i < 2; ++i) {
    out[i] = hn::ShiftRight<kDown>(hn::Add(e[i], o[i]));
    out[3 - i] = hn::ShiftRight<kDown>(hn::Sub(e[i], o[i]));
  }
}

// One dimension to two outputs, of in[0] and the odd inputs, for half of the lanes.
template <bool kUpper, int kInputs>
HWY_INLINE void HalfTo2(const V16* in, V32* out) {
  const D16 d;
  constexpr int kDown = 13;
  const V32 even = hn::Add(Scaled<kUpper, 15>(in[0]), hn::Set(D32(), 1 << (kDown - 1)));
  V32 odd = DotPairs(Pairs<kUpper>(in[1], in[3]), SetPairs(d, k3624, -k1272));
  if constexpr (kInputs == 8)
    odd = AddDotPairs(odd, Pairs<kUpper>(in[5], in[7]), SetPairs(d, k0850, -k0720));
  out[0] = hn::ShiftRight<kDown>(hn::Add(even, odd));
  out[1] = hn::ShiftRight<kDown>(hn::Sub(even, odd));
}

template <int kInputs, int kDown, bool kRound>
HWY_INLINE void PassTo4(const V16* in, V16* out) {
  V32 lower[4], upper[4];
  HalfTo4<false, kInputs, kDown, kRound>(in, lower);
  HalfTo4<true, kInputs, kDown, kRound>(in, upper);
  for (int i = 0; i < 4; ++i) out[i] = hn::ReorderDemote2To(D16(), lower[i], upper[i]);
}

// The first dimension: kInputs rows of coefficients to kSide rows.
template <int kSide, int kInputs>
HWY_INLINE void ReduceRows(const V16* in, V16* out) {
  if constexpr (kSide == 4) {
    PassTo4<kInputs, 12, true>(in, out);
  } else {
    V32 lower[2], upper[2];
    HalfTo2<false, kInputs>(in, lower);
    HalfTo2<true, kInputs>(in, upper);
    for (int i = 0; i < 2; ++i) out[i] = hn::ReorderDemote2To(D16(), lower[i], upper[i]);
  }
}

// Four rows of eight lanes: pairs[k] has in each 128 bits the four values of lane 2k, then those of
// lane 2k + 1.
HWY_INLINE void TransposeFourRows(const V16* rows, V16* pairs) {
  const D16 d;
  const D32 d32;
  const V16 a = hn::InterleaveLower(d, rows[0], rows[1]),
            b = hn::InterleaveLower(d, rows[2], rows[3]);
  const V16 c = hn::InterleaveUpper(d, rows[0], rows[1]),
            e = hn::InterleaveUpper(d, rows[2], rows[3]);
  pairs[0] = InterleaveLowerAs(d, d32, a, b);
  pairs[1] = InterleaveUpperAs(d, d32, a, b);
  pairs[2] = InterleaveLowerAs(d, d32, c, e);
  pairs[3] = InterleaveUpperAs(d, d32, c, e);
}

// The second dimension to 4x4 samples. columns[i]: in each 128 bits four rows of column i of a
// block that goes to a[], and of one that goes to b[].
template <int kInputs, bool kRange>
HWY_INLINE void FinishFour(V16* columns, uint8_t* const* a, uint8_t* const* b, size_t stride,
                           V16* range) {
  const D8 d;
  const D16 d16;
  V16 values[4];
  // As in idct-inl.h: the rounding and the +128, here times 16,384.
  columns[0] = hn::Add(columns[0], hn::Set(d16, 16 + 4096));
  PassTo4<kInputs, 19, false>(columns, values);
  if (kRange) WidenRange(values, 4, range);
  const V8 even = PackUnsigned(values[0], values[2]), odd = PackUnsigned(values[1], values[3]);
  const V8 left = hn::InterleaveLower(d, even, odd), right = hn::InterleaveUpper(d, even, odd);
  HWY_ALIGN uint8_t samples[2][16 * kBlocks];
  hn::Store(InterleaveLowerAs(d, d16, left, right), d, samples[0]);
  hn::Store(InterleaveUpperAs(d, d16, left, right), d, samples[1]);
  for (size_t i = 0; i < kBlocks; ++i) {
    for (int y = 0; y < 4; ++y) {
      __builtin_memcpy(a[i] + y * stride, samples[0] + 16 * i + 4 * y, 4);
      __builtin_memcpy(b[i] + y * stride, samples[1] + 16 * i + 4 * y, 4);
    }
  }
}

// The second dimension to 2x2 samples. plus[y], minus[y]: of row y, in each 64 bits two numbers
// whose sum is the left, the right sample of a block, times -(1 << 20): first of one that goes to
// a[], then of one that goes to b[].
template <bool kRange>
HWY_INLINE void FinishTwo(const V32* plus, const V32* minus, uint8_t* const* a, uint8_t* const* b,
                          size_t stride, V16* range) {
  const D8 d;
  const D32 d32;
  const V32 offset = hn::Set(d32, (1 << 19) + (128 << 20));
  V32 rows[2];
  for (int y = 0; y < 2; ++y) {
    const V32 sum =
        hn::Add(hn::OddEven(minus[y], plus[y]), hn::Shuffle2301(hn::OddEven(plus[y], minus[y])));
    rows[y] = hn::ShiftRight<20>(hn::Sub(offset, sum));
  }
  const V16 values = hn::ReorderDemote2To(D16(), rows[0], rows[1]);
  if (kRange) WidenRange(&values, 1, range);
  HWY_ALIGN uint8_t samples[16 * kBlocks];
  hn::Store(PackUnsigned(values, values), d, samples);
  for (size_t i = 0; i < kBlocks; ++i) {
    for (int y = 0; y < 2; ++y) {
      __builtin_memcpy(a[i] + y * stride, samples + 16 * i + 4 * y, 2);
      __builtin_memcpy(b[i] + y * stride, samples + 16 * i + 4 * y + 2, 2);
    }
  }
}

// What a row's lanes are multiplied by for FinishTwo; the factor of lane 0 is 32,768 with its sign
// turned, because int16 has no other.
HWY_ALIGN static constexpr int16_t kPlus[8] = {-32768, -k3624, 0, k1272, 0, -k0850, 0, k0720};
HWY_ALIGN static constexpr int16_t kMinus[8] = {-32768, k3624, 0, -k1272, 0, k0850, 0, -k0720};
HWY_ALIGN static constexpr int16_t kQuarterPlus[8] = {-32768, -k3624, 0, k1272,
                                                      -32768, -k3624, 0, k1272};
HWY_ALIGN static constexpr int16_t kQuarterMinus[8] = {-32768, k3624, 0, -k1272,
                                                       -32768, k3624, 0, -k1272};

// From what ReduceRows made of kBlocks blocks, and of the next kBlocks, to samples. `range` as
// WidenRange, or null.
template <int kSide, bool kRange>
HWY_INLINE void FinishFull(const V16* first, const V16* second, uint8_t* const* out, size_t stride,
                           V16* range) {
  const D16 d;
  const hn::Repartition<int64_t, D16> d64;
  if constexpr (kSide == 4) {
    V16 a[4], b[4], columns[8];
    TransposeFourRows(first, a);
    TransposeFourRows(second, b);
    for (int k = 0; k < 4; ++k) {
      columns[2 * k] = InterleaveLowerAs(d, d64, a[k], b[k]);
      columns[2 * k + 1] = InterleaveUpperAs(d, d64, a[k], b[k]);
    }
    FinishFour<8, kRange>(columns, out, out + kBlocks, stride, range);
  } else {
    const D32 d32;
    V32 sums[2][2];
    for (int sign = 0; sign < 2; ++sign) {
      const V16 factors = hn::LoadDup128(d, sign == 0 ? kPlus : kMinus);
      for (int y = 0; y < 2; ++y) {
        const V32 a = DotPairs(first[y], factors), b = DotPairs(second[y], factors);
        sums[sign][y] =
            hn::Add(InterleaveLowerAs(d32, d64, a, b), InterleaveUpperAs(d32, d64, a, b));
      }
    }
    FinishTwo<kRange>(sums[0], sums[1], out, out + kBlocks, stride, range);
  }
}

// The same for 2 * kBlocks blocks without coefficients beyond row or column 3.
template <int kSide, bool kRange>
HWY_INLINE void FinishQuarter(const V16* rows, uint8_t* const* out, size_t stride, V16* range) {
  const D16 d;
  uint8_t *a[kBlocks], *b[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    a[i] = out[2 * i];
    b[i] = out[2 * i + 1];
  }
  if constexpr (kSide == 4) {
    const hn::Repartition<int64_t, D16> d64;
    V16 pairs[4], columns[4];
    TransposeFourRows(rows, pairs);
    for (int k = 0; k < 2; ++k) {
      columns[2 * k] = InterleaveLowerAs(d, d64, pairs[k], pairs[2 + k]);
      columns[2 * k + 1] = InterleaveUpperAs(d, d64, pairs[k], pairs[2 + k]);
    }
    FinishFour<4, kRange>(columns, a, b, stride, range);
  } else {
    V32 plus[2], minus[2];
    for (int y = 0; y < 2; ++y) {
      plus[y] = DotPairs(rows[y], hn::LoadDup128(d, kQuarterPlus));
      minus[y] = DotPairs(rows[y], hn::LoadDup128(d, kQuarterMinus));
    }
    FinishTwo<kRange>(plus, minus, a, b, stride, range);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#endif  // FEEDWATER_CODEC_JPEG_REDUCED_IDCT_INL_H_
