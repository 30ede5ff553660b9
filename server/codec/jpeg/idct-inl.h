// The accurate integer inverse DCT (libjpeg's jidctint), one 8x8 block in each 128 bits of a
// vector. Within the guards no intermediate value leaves its type, so any exact way to compute the
// same sums gives libjpeg's bits; here:
// - the odd half is a 4x4 matrix of the combined constants, all of which fit int16;
// - columns first, then rows (the rounding between them makes the other order differ);
// - the second rounding and the +128 are added to column 0 beforehand (16 + 4096, times 8192).
#if defined(FEEDWATER_CODEC_JPEG_IDCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FEEDWATER_CODEC_JPEG_IDCT_INL_H_
#undef FEEDWATER_CODEC_JPEG_IDCT_INL_H_
#else
#define FEEDWATER_CODEC_JPEG_IDCT_INL_H_
#endif

#include "server/codec/jpeg/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using D16 = hn::CappedTag<int16_t, 32>;
using D32 = hn::RepartitionToWide<D16>;
using D8 = hn::Repartition<uint8_t, D16>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
using V8 = hn::Vec<D8>;
constexpr size_t kBlocks = hn::MaxLanes(D16()) / 8;  // blocks of a vector

// jidctint.c's constants, 13 fraction bits: k0899 is 0.899976223.
constexpr int k0298 = 2446, k0390 = 3196, k0541 = 4433, k0765 = 6270, k0899 = 7373, k1175 = 9633,
              k1501 = 12299, k1847 = 15137, k1961 = 16069, k2053 = 16819, k2562 = 20995,
              k3072 = 25172;
// Rows: what is added to and subtracted from the even half for outputs 0|7, 1|6, 2|5, 3|4.
// Columns: inputs 1, 3, 5, 7.
constexpr int kOdd[4][4] = {{k1501 - k0899 - k0390 + k1175, k1175, k1175 - k0390, k1175 - k0899},
                            {k1175, k3072 - k2562 - k1961 + k1175, k1175 - k2562, k1175 - k1961},
                            {k1175 - k0390, k1175 - k2562, k2053 - k2562 - k0390 + k1175, k1175},
                            {k1175 - k0899, k1175 - k1961, k1175, k0298 - k0899 - k1961 + k1175}};

// Half of a pass (four columns of each block): `even` holds the pairs (in0, in4), (in2, in6) and
// `odd` (in1, in3), (in5, in7); or with four inputs only (in0, in2) and (in1, in3).
template <int kInputs, int kDown, bool kRound>
HWY_INLINE void HalfPass(const V16* even, const V16* odd, V32* out) {
  const D16 d;
  V32 e[4], o[4];
  const V32 rounding = hn::Set(D32(), kRound ? 1 << (kDown - 1) : 0);
  const auto start = [&](V16 pairs, V16 factors) HWY_ATTR {
    return kRound ? AddDotPairs(rounding, pairs, factors) : DotPairs(pairs, factors);
  };
  if constexpr (kInputs == 4) {
    e[0] = start(even[0], SetPairs(d, 8192, k0541 + k0765));
    e[1] = start(even[0], SetPairs(d, 8192, k0541));
    e[2] = start(even[0], SetPairs(d, 8192, -k0541));
    e[3] = start(even[0], SetPairs(d, 8192, -k0541 - k0765));
    for (int i = 0; i < 4; ++i) o[i] = DotPairs(odd[0], SetPairs(d, kOdd[i][0], kOdd[i][1]));
  } else {
    const V32 sum = start(even[0], SetPairs(d, 8192, 8192));
    const V32 difference = start(even[0], SetPairs(d, 8192, -8192));
#if HWY_TARGET == HWY_AVX3_DL  // accumulates for nothing
    e[0] = AddDotPairs(sum, even[1], SetPairs(d, k0541 + k0765, k0541));
    e[1] = AddDotPairs(difference, even[1], SetPairs(d, k0541, k0541 - k1847));
    e[2] = AddDotPairs(difference, even[1], SetPairs(d, -k0541, k1847 - k0541));
    e[3] = AddDotPairs(sum, even[1], SetPairs(d, -k0541 - k0765, -k0541));
#else
    const V32 t3 = DotPairs(even[1], SetPairs(d, k0541 + k0765, k0541));
    const V32 t2 = DotPairs(even[1], SetPairs(d, k0541, k0541 - k1847));
    e[0] = hn::Add(sum, t3);
    e[1] = hn::Add(difference, t2);
    e[2] = hn::Sub(difference, t2);
    e[3] = hn::Sub(sum, t3);
#endif
    for (int i = 0; i < 4; ++i) {
      o[i] = AddDotPairs(DotPairs(odd[0], SetPairs(d, kOdd[i][0], kOdd[i][1])), odd[1],
                         SetPairs(d, kOdd[i][2], kOdd[i][3]));
    }
  }
  for (int i = 0; i < 4; ++i) {
    out[i] = hn::ShiftRight<kDown>(hn::Add(e[i], o[i]));
    out[7 - i] = hn::ShiftRight<kDown>(hn::Sub(e[i], o[i]));
  }
}

// One dimension of the transform, across vectors: in[k] holds the k-th inputs, out[k] the k-th
// outputs. Inputs from kInputs on are zero.
template <int kInputs, int kDown, bool kRound>
HWY_INLINE void Pass(const V16* in, V16* out) {
  const D16 d;
  V32 lower[8], upper[8];
  V16 even[2], odd[2];
  if constexpr (kInputs == 4) {
    even[0] = hn::InterleaveLower(d, in[0], in[2]);
    odd[0] = hn::InterleaveLower(d, in[1], in[3]);
    HalfPass<4, kDown, kRound>(even, odd, lower);
    even[0] = hn::InterleaveUpper(d, in[0], in[2]);
    odd[0] = hn::InterleaveUpper(d, in[1], in[3]);
    HalfPass<4, kDown, kRound>(even, odd, upper);
  } else {
    even[0] = hn::InterleaveLower(d, in[0], in[4]);
    even[1] = hn::InterleaveLower(d, in[2], in[6]);
    odd[0] = hn::InterleaveLower(d, in[1], in[3]);
    odd[1] = hn::InterleaveLower(d, in[5], in[7]);
    HalfPass<8, kDown, kRound>(even, odd, lower);
    even[0] = hn::InterleaveUpper(d, in[0], in[4]);
    even[1] = hn::InterleaveUpper(d, in[2], in[6]);
    odd[0] = hn::InterleaveUpper(d, in[1], in[3]);
    odd[1] = hn::InterleaveUpper(d, in[5], in[7]);
    HalfPass<8, kDown, kRound>(even, odd, upper);
  }
  for (int i = 0; i < 8; ++i) out[i] = hn::ReorderDemote2To(d, lower[i], upper[i]);
}

template <class D, class DWide, class V>
HWY_INLINE V InterleaveLowerAs(D d, DWide wide, V a, V b) {
  return hn::BitCast(d, hn::InterleaveLower(wide, hn::BitCast(wide, a), hn::BitCast(wide, b)));
}
template <class D, class DWide, class V>
HWY_INLINE V InterleaveUpperAs(D d, DWide wide, V a, V b) {
  return hn::BitCast(d, hn::InterleaveUpper(wide, hn::BitCast(wide, a), hn::BitCast(wide, b)));
}

// Four columns (the lower or the upper ones) of eight rows.
template <bool kUpper>
HWY_INLINE void TransposeHalf(const V16* rows, V16* columns) {
  const D16 d;
  const D32 d32;
  const hn::RepartitionToWide<D32> d64;
  V16 a[4], b[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = kUpper ? hn::InterleaveUpper(d, rows[2 * i], rows[2 * i + 1])
                  : hn::InterleaveLower(d, rows[2 * i], rows[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[2 * i] = InterleaveLowerAs(d, d32, a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = InterleaveUpperAs(d, d32, a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    columns[2 * i] = InterleaveLowerAs(d, d64, b[i], b[2 + i]);
    columns[2 * i + 1] = InterleaveUpperAs(d, d64, b[i], b[2 + i]);
  }
}

// Two rows of samples in each 128 bits, for kBlocks blocks.
template <class D, class V>
HWY_INLINE void StoreRows(D /*d*/, V rows, uint8_t* const* out, size_t first, size_t stride) {
  const hn::Half<D> half;
  if constexpr (hn::MaxLanes(D()) == 16) {
    hn::StoreU(hn::LowerHalf(half, rows), half, out[0] + first * stride);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
    // One instruction; GCC 12 takes the way through a general register for UpperHalf.
    _mm_storeh_pd(reinterpret_cast<double*>(out[0] + (first + 1) * stride),
                  _mm_castsi128_pd(rows.raw));
#else
    hn::StoreU(hn::UpperHalf(half, rows), half, out[0] + (first + 1) * stride);
#endif
  } else {
    StoreRows(half, hn::LowerHalf(half, rows), out, first, stride);
    StoreRows(half, hn::UpperHalf(half, rows), out + hn::MaxLanes(half) / 16, first, stride);
  }
}

// columns[i]: column i of each block, its rows as lanes; clips to samples and stores the blocks.
HWY_INLINE void StoreColumns(const V16* columns, uint8_t* const* out, size_t stride) {
  const D8 d;
  const D32 d32;
  V8 p[4], a[4], b[4];
  for (int i = 0; i < 4; ++i) p[i] = PackUnsigned(columns[2 * i], columns[2 * i + 1]);
  for (int i = 0; i < 2; ++i) {
    a[2 * i] = hn::InterleaveLower(d, p[2 * i], p[2 * i + 1]);
    a[2 * i + 1] = hn::InterleaveUpper(d, p[2 * i], p[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[2 * i] = hn::InterleaveLower(d, a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = hn::InterleaveUpper(d, a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    StoreRows(d, InterleaveLowerAs(d, d32, b[i], b[2 + i]), out, 4 * i, stride);
    StoreRows(d, InterleaveUpperAs(d, d32, b[i], b[2 + i]), out, 4 * i + 2, stride);
  }
}

// Widens `range` = {lowest, highest} to the values before clipping, which include the +128.
HWY_INLINE void WidenRange(const V16* values, int count, V16* range) {
  for (int i = 0; i < count; ++i) {
    range[0] = hn::Min(range[0], values[i]);
    range[1] = hn::Max(range[1], values[i]);
  }
}

// From dequantised rows (lanes are columns) to samples. `range` as WidenRange, or null.
template <bool kRange>
HWY_INLINE void TransformFull(const V16* in, uint8_t* const* out, size_t stride, V16* range) {
  V16 rows[8], columns[8];
  Pass<8, 11, true>(in, rows);
  TransposeHalf<false>(rows, columns);
  TransposeHalf<true>(rows, columns + 4);
  columns[0] = hn::Add(columns[0], hn::Set(D16(), 16 + 4096));
  Pass<8, 18, false>(columns, rows);
  if (kRange) WidenRange(rows, 8, range);
  StoreColumns(rows, out, stride);
}

// The same for 2 * kBlocks blocks without coefficients beyond row or column 3: in[k] holds in each
// 128 bits four columns of row k of a block and of the next one.
template <bool kRange>
HWY_INLINE void TransformQuarter(const V16* in, uint8_t* const* out, size_t stride, V16* range) {
  V16 rows[8], columns[4], values[8];
  uint8_t* to[kBlocks];
  Pass<4, 11, true>(in, rows);
  for (int second = 0; second < 2; ++second) {
    if (second == 0) {
      TransposeHalf<false>(rows, columns);
    } else {
      TransposeHalf<true>(rows, columns);
    }
    columns[0] = hn::Add(columns[0], hn::Set(D16(), 16 + 4096));
    Pass<4, 18, false>(columns, values);
    if (kRange) WidenRange(values, 8, range);
    for (size_t i = 0; i < kBlocks; ++i) to[i] = out[2 * i + second];
    StoreColumns(values, to, stride);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

// A block without AC coefficients, kSide samples wide and high; `dc` is dequantised.
template <int kSide>
HWY_INLINE void FillBlock(int dc, uint8_t* out, size_t stride) {
  const int value = ((dc + 4) >> 3) + 128;
  const uint64_t samples = 0x0101010101010101u * static_cast<uint64_t>(value < 0     ? 0
                                                                       : value > 255 ? 255
                                                                                     : value);
  for (int y = 0; y < kSide; ++y) __builtin_memcpy(out + y * stride, &samples, kSide);
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#endif  // FEEDWATER_CODEC_JPEG_IDCT_INL_H_
