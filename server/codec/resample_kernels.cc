#include "server/codec/resample_kernels.h"

#include <algorithm>
#include <cstring>

// Sizeless vectors (SVE, RISC-V) cannot be stored in arrays, which the transposes need; NEON is
// there wherever SVE is.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/resample_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI16 = hn::CappedTag<int16_t, 16>;
using DI32 = hn::CappedTag<int32_t, 16>;
using DI16Row = hn::CappedTag<int16_t, 32>;  // where no band is 16 rows high
using DI16Half = hn::Rebind<int16_t, DI32>;  // as many as DI32
using VI16 = hn::Vec<DI16>;

constexpr int kFilteredBits = 6;  // binary places after a filter

// What does not depend on the number of taps. Inlined into all 64 of FilterBandNarrowT, in every
// target, its checks would keep GCC busy for a quarter of an hour.
#undef FW_TAPLESS_INLINE
#ifdef __SANITIZE_ADDRESS__  // GCC's
#define FW_TAPLESS_INLINE HWY_NOINLINE
#else
#define FW_TAPLESS_INLINE HWY_INLINE
#endif

// What becomes of a byte: narrow filters take -(sample << 7) and negative weights, since one
// multiply-add of bytes gives that, but no positive factor of 128; wide ones take the sample.
struct NegativeSample {};
struct PlainSample {};

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE int16_t Widen(uint8_t sample, NegativeSample) {
  return static_cast<int16_t>(-128 * sample);
}
HWY_INLINE int16_t Widen(uint8_t sample, PlainSample) { return sample; }

template <class As>
HWY_INLINE void TransposeColumn(const uint8_t* const* rows, size_t at, int16_t* columns, As as) {
  for (size_t r = 0; r < 16; ++r) columns[r] = Widen(rows[r][at], as);
}

HWY_INLINE void UntransposeBlock(const int16_t* columns, int16_t* const* rows, size_t x) {
  for (size_t i = 0; i < 8; ++i) {
    for (size_t r = 0; r < 16; ++r) rows[r][x + i] = columns[i * 16 + r];
  }
}

#else  // a vector has one or two blocks of 16 bytes

// A perfect shuffle: the first half of the rows interleaved with the second. Three of them
// transpose 8 x 8 within each block.
template <class D, class V, int kRows>
HWY_INLINE void Shuffle(D d, const V (&in)[kRows], V (&out)[kRows]) {
  for (int i = 0; i < kRows / 2; ++i) {
    out[2 * i] = hn::InterleaveLower(d, in[i], in[i + kRows / 2]);
    out[2 * i + 1] = hn::InterleaveUpper(d, in[i], in[i + kRows / 2]);
  }
}

// The even and the odd bytes of a vector, widened.
template <class D, class V>
HWY_INLINE V EvenBytes(D d, V v, PlainSample) {
  return hn::And(v, hn::Set(d, 0xFF));
}
template <class D, class V>
HWY_INLINE V OddBytes(D d, V v, PlainSample) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(du, v)));
}
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SSE2
// One multiply-add of bytes widens, scales and picks.
HWY_INLINE hn::Vec128<int16_t> PickBytes(hn::Vec128<int16_t> v, int16_t factors) {
  return hn::Vec128<int16_t>{_mm_maddubs_epi16(v.raw, _mm_set1_epi16(factors))};
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec256<int16_t> PickBytes(hn::Vec256<int16_t> v, int16_t factors) {
  return hn::Vec256<int16_t>{_mm256_maddubs_epi16(v.raw, _mm256_set1_epi16(factors))};
}
#endif
template <class D, class V>
HWY_INLINE V EvenBytes(D, V v, NegativeSample) {
  return PickBytes(v, 0x0080);
}
template <class D, class V>
HWY_INLINE V OddBytes(D, V v, NegativeSample) {
  return PickBytes(v, static_cast<int16_t>(0x8000));
}
#else
template <class D, class V>
HWY_INLINE V EvenBytes(D d, V v, NegativeSample) {
  return hn::Mul(EvenBytes(d, v, PlainSample()), hn::Set(d, -128));
}
template <class D, class V>
HWY_INLINE V OddBytes(D d, V v, NegativeSample) {
  return hn::Mul(OddBytes(d, v, PlainSample()), hn::Set(d, -128));
}
#endif

// 8 rows' neighbouring bytes become columns of pairs, in each block of 16 bytes by itself.
template <class D>
HWY_INLINE void TransposePairs(D d, const uint8_t* const* rows, size_t at, hn::Vec<D> (&out)[8]) {
  const hn::Repartition<uint8_t, D> d8;
  hn::Vec<D> a[8], b[8];
  for (size_t r = 0; r < 8; ++r) a[r] = hn::BitCast(d, hn::LoadU(d8, rows[r] + at));
  Shuffle(d, a, b);
  Shuffle(d, b, a);
  Shuffle(d, a, out);
}

// As many bytes of each of 16 rows as a vector has become columns. Two neighbouring bytes travel as
// one lane of 16 bits and part at the end.
template <class D, class As>
HWY_INLINE void TransposeBlock(D d, const uint8_t* const* rows, size_t at, int16_t* columns,
                               As as) {
  hn::Vec<D> upper[8], lower[8];
  TransposePairs(d, rows, at, upper);
  TransposePairs(d, rows + 8, at, lower);
  const auto store = [&](hn::Vec<D> pairs, int16_t* to) HWY_ATTR {
    hn::Store(EvenBytes(d, pairs, as), d, to);
    hn::Store(OddBytes(d, pairs, as), d, to + 16);
  };
  for (size_t i = 0; i < 8; ++i) {
    if constexpr (hn::MaxLanes(D()) == 16) {
      store(hn::ConcatLowerLower(d, lower[i], upper[i]), columns + 2 * i * 16);
      store(hn::ConcatUpperUpper(d, lower[i], upper[i]), columns + (16 + 2 * i) * 16);
    } else {
      store(upper[i], columns + 2 * i * 16);
      store(lower[i], columns + 2 * i * 16 + 8);
    }
  }
}

// 8 columns of one part (16 rows, or 8 where a vector has no more) into rows.
template <class D>
FW_TAPLESS_INLINE void StoreTransposed(D d, const hn::Vec<D> (&columns)[8], size_t part,
                                       int16_t* const* rows, size_t x) {
  const hn::FixedTag<int16_t, 8> block;
  hn::Vec<D> a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = columns[i];
  Shuffle(d, a, b);
  Shuffle(d, b, a);
  Shuffle(d, a, b);
  for (size_t i = 0; i < 8; ++i) {
    if constexpr (hn::MaxLanes(D()) == 16) {  // the upper half holds row 8 + i
      hn::StoreU(hn::LowerHalf(block, b[i]), block, rows[i] + x);
      hn::StoreU(hn::UpperHalf(block, b[i]), block, rows[8 + i] + x);
    } else {
      hn::StoreU(b[i], block, rows[part + i] + x);
    }
  }
}

HWY_INLINE void UntransposeBlock(const int16_t* columns, int16_t* const* rows, size_t x) {
  const DI16 d;
  for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
    VI16 a[8];
    for (size_t i = 0; i < 8; ++i) a[i] = hn::Load(d, columns + i * 16 + part);
    StoreTransposed(d, a, part, rows, x);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// Bytes [from, to) of the rows into columns, rounded up to whole vectors. Reads no byte from
// `samples` on.
template <class As>
FW_TAPLESS_INLINE void TransposeRange(const uint8_t* const* rows, size_t from, size_t to,
                                      size_t samples, int16_t* HWY_RESTRICT columns, As as) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t at = from; at < to; ++at) TransposeColumn(rows, at, columns + (at - from) * 16, as);
  (void)samples;
#else
  const DI16 d;
  const size_t n = 2 * hn::Lanes(d);
  size_t at = from;
  for (; at < to && at + n <= samples; at += n)
    TransposeBlock(d, rows, at, columns + (at - from) * 16, as);
  if (at >= to) return;
  uint8_t tail[16][32] = {};
  const uint8_t* tails[16];
  for (int r = 0; r < 16; ++r) {
    std::memcpy(tail[r], rows[r] + at, samples - at);
    tails[r] = tail[r];
  }
  TransposeBlock(d, tails, 0, columns + (at - from) * 16, as);
#endif
}

// To samples << 7, within the range of a sample: Pillow clips between the axes too.
HWY_INLINE VI16 ToNextFilter(VI16 filtered) {
  const DI16 d;
  return hn::ShiftLeft<1>(
      hn::Min(hn::Max(filtered, hn::Zero(d)), hn::Set(d, 255 << kFilteredBits)));
}

// The weighted sums of one part of the columns from `in` on, for all channels.
template <int kTaps, int kChannels>
HWY_INLINE void WeightedColumns(const int16_t* HWY_RESTRICT in, const int32_t* HWY_RESTRICT weights,
                                VI16 (&sum)[kChannels]) {
  const DI16 d;
#if HWY_TARGET == HWY_SCALAR
  const auto weight = [&](int k) { return hn::Set(d, static_cast<int16_t>(weights[k])); };
#else
  const hn::RepartitionToWide<DI16> d32;
  const auto weight = [&](int k) HWY_ATTR { return hn::BitCast(d, hn::Set(d32, weights[k])); };
#endif
  for (int c = 0; c < kChannels; ++c)
    sum[c] = hn::MulFixedPoint15(hn::Load(d, in + c * 16), weight(0));
  for (int k = 1; k < kTaps; ++k) {
    const auto w = weight(k);
    for (int c = 0; c < kChannels; ++c) {
      const auto sample = hn::Load(d, in + (k * kChannels + c) * 16);
      sum[c] = hn::Add(sum[c], hn::MulFixedPoint15(sample, w));
    }
  }
  for (int c = 0; c < kChannels; ++c) sum[c] = ToNextFilter(sum[c]);
}

// Outputs [x, x + 8) from columns that begin with byte `origin` of the rows.
template <int kTaps, int kChannels>
HWY_INLINE void FilterEight(const int16_t* columns, size_t origin, const AxisWeights& axis, int x,
                            int16_t* const* out) {
  const DI16 d;
  const int32_t* HWY_RESTRICT start = axis.start + x;
  const int32_t* HWY_RESTRICT weights = axis.weights + static_cast<size_t>(x) * kTaps;
  const size_t at = axis.reversed ? axis.count - 8 - x : x;
  const int swap = axis.reversed ? 7 : 0;
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 8; ++i) {
    for (int part = 0; part < 16; ++part) {
      VI16 sum[kChannels];
      WeightedColumns<kTaps, kChannels>(columns + (start[i] - origin) * 16 + part,
                                        weights + i * kTaps, sum);
      for (int c = 0; c < kChannels; ++c)
        out[part][c * axis.plane + at + (i ^ swap)] = hn::GetLane(sum[c]);
    }
  }
  (void)d;
#else
  for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
    VI16 filtered[kChannels][8];
    for (int i = 0; i < 8; ++i) {
      VI16 sum[kChannels];
      WeightedColumns<kTaps, kChannels>(columns + (start[i] - origin) * 16 + part,
                                        weights + i * kTaps, sum);
      for (int c = 0; c < kChannels; ++c) filtered[c][i ^ swap] = sum[c];
    }
    for (int c = 0; c < kChannels; ++c)
      StoreTransposed(d, filtered[c], part, out, c * axis.plane + at);
  }
#endif
}

template <int kTaps, int kChannels>
void FilterBandNarrowT(const uint8_t* const* rows, const AxisWeights& axis, int16_t* scratch,
                       int16_t* const* out) {
  const auto end_byte = [&](int x) {
    return static_cast<size_t>(axis.start[std::min(x, axis.count) - 1]) + kTaps * kChannels;
  };
  const int last = axis.count - 8;  // the last group of 8 overlaps the one before
  for (int x = 0; x < axis.count;) {
    // A strip is as many groups of 8 outputs as its columns have room for. There is always room for
    // one: 16 taps or less are a reduction to no less than an eighth, or a row of 16 pixels.
    const int begin = std::min(x, last);
    const size_t from = static_cast<size_t>(axis.start[begin]) / 32 * 32;
    int end = begin + 8;
    while (end < axis.count && end_byte(end + 8) - from <= kStripColumns) end += 8;
    TransposeRange(rows, from, end_byte(end), axis.samples, scratch, NegativeSample());
    for (x = begin; x < end; x += 8)
      FilterEight<kTaps, kChannels>(scratch, from, axis, std::min(x, last), out);
  }
}

template <int kChannels>
void FilterBandNarrowC(const uint8_t* const* rows, const AxisWeights& axis, int16_t* scratch,
                       int16_t* const* out) {
  switch (axis.taps) {
#define FW_TAPS(n) \
  case n:          \
    return FilterBandNarrowT<n, kChannels>(rows, axis, scratch, out);
    // clang-format off
    FW_TAPS(1) FW_TAPS(2) FW_TAPS(3) FW_TAPS(4) FW_TAPS(5) FW_TAPS(6) FW_TAPS(7) FW_TAPS(8)
    FW_TAPS(9) FW_TAPS(10) FW_TAPS(11) FW_TAPS(12) FW_TAPS(13) FW_TAPS(14) FW_TAPS(15) FW_TAPS(16)
    // clang-format on
#undef FW_TAPS
  }
}

void FilterBandNarrow(const uint8_t* const* rows, const AxisWeights& axis, int16_t* scratch,
                      int16_t* const* out) {
  switch (axis.channels) {
    case 1:
      return FilterBandNarrowC<1>(rows, axis, scratch, out);
    case 2:
      return FilterBandNarrowC<2>(rows, axis, scratch, out);
    case 3:
      return FilterBandNarrowC<3>(rows, axis, scratch, out);
    case 4:
      return FilterBandNarrowC<4>(rows, axis, scratch, out);
  }
}

void FilterColumnsWide(const int16_t* HWY_RESTRICT columns, int channels,
                       const int32_t* HWY_RESTRICT start, const int32_t* HWY_RESTRICT weights,
                       int taps, int count, bool reversed, size_t plane,
                       int16_t* HWY_RESTRICT out) {
  constexpr int kDown = 20 - kFilteredBits;
  const DI32 d;
  const DI16Half d16;
  const size_t n = hn::Lanes(d);
  for (int x = 0; x < count; ++x) {
    const int32_t* w = weights + static_cast<ptrdiff_t>(x) * taps;
    for (int c = 0; c < channels; ++c) {
      const int16_t* in = columns + static_cast<ptrdiff_t>(start[x] + c) * 16;
      int16_t* to = out + (c * plane + (reversed ? count - 1 - x : x)) * 16;
      for (size_t part = 0; part < 16; part += n) {
        auto sum = hn::Set(d, 1 << (kDown - 1));
        for (int k = 0; k < taps; ++k) {
          const auto sample = hn::PromoteTo(
              d, hn::Load(d16, in + static_cast<ptrdiff_t>(k) * channels * 16 + part));
          sum = hn::Add(sum, hn::Mul(sample, hn::Set(d, w[k])));
        }
        const auto clipped = hn::Min(hn::Max(hn::ShiftRight<kDown>(sum), hn::Zero(d)),
                                     hn::Set(d, 255 << kFilteredBits));
        hn::Store(hn::DemoteTo(d16, hn::ShiftLeft<1>(clipped)), d16, to + part);
      }
    }
  }
}

void FilterBandWide(const uint8_t* const* rows, const AxisWeights& axis, int16_t* scratch,
                    int16_t* const* out) {
  TransposeRange(rows, 0, axis.samples, axis.samples, scratch, PlainSample());
  int16_t* filtered = scratch + (axis.samples + 31) / 32 * 32 * 16;
  FilterColumnsWide(scratch, axis.channels, axis.start, axis.weights, axis.taps, axis.count,
                    axis.reversed, axis.plane, filtered);
  for (size_t x = 0; x < axis.channels * axis.plane; x += 8)
    UntransposeBlock(filtered + x * 16, out, x);
}

template <int kTaps>
HWY_INLINE void FilterRowsT(const int16_t* const* rows, const int16_t* weights, size_t count,
                            uint8_t* HWY_RESTRICT out) {
  const DI16Row d;
  const hn::Rebind<uint8_t, DI16Row> half;
  const int16_t* HWY_RESTRICT row[kTaps];
  hn::Vec<DI16Row> weight[kTaps];
  for (int k = 0; k < kTaps; ++k) {
    row[k] = rows[k];
    weight[k] = hn::Set(d, weights[k]);
  }
  const auto rounding = hn::Set(d, 1 << (kFilteredBits - 1));
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    auto sum = rounding;
    for (int k = 0; k < kTaps; ++k) {
      sum = hn::Add(sum, hn::MulFixedPoint15(hn::Load(d, row[k] + i), weight[k]));
    }
    hn::StoreU(hn::DemoteTo(half, hn::ShiftRight<kFilteredBits>(sum)), half, out + i);
  }
}

void FilterRows(const int16_t* const* rows, const int16_t* weights, int taps, size_t count,
                uint8_t* out) {
  switch (taps) {
#define FW_TAPS(n) \
  case n:          \
    return FilterRowsT<n>(rows, weights, count, out);
    // clang-format off
    FW_TAPS(1) FW_TAPS(2) FW_TAPS(3) FW_TAPS(4) FW_TAPS(5) FW_TAPS(6) FW_TAPS(7) FW_TAPS(8)
    FW_TAPS(9) FW_TAPS(10) FW_TAPS(11) FW_TAPS(12) FW_TAPS(13) FW_TAPS(14) FW_TAPS(15) FW_TAPS(16)
    // clang-format on
#undef FW_TAPS
  }
}

void AccumulateRow(const int16_t* HWY_RESTRICT row, int32_t weight, size_t count,
                   int32_t* HWY_RESTRICT sums) {
  const DI32 d;
  const DI16Half d16;
  const auto w = hn::Set(d, weight);
  const auto rounding = hn::Set(d, 16);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto sample =
        hn::ShiftRight<5>(hn::Add(hn::PromoteTo(d, hn::Load(d16, row + i)), rounding));
    hn::Store(hn::Add(hn::Load(d, sums + i), hn::Mul(sample, w)), d, sums + i);
  }
}

void FinishRow(const int32_t* HWY_RESTRICT sums, size_t count, uint8_t* HWY_RESTRICT out) {
  const DI32 d;
  const hn::Rebind<uint8_t, DI32> d8;
  const auto rounding = hn::Set(d, 1 << 21);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto value = hn::ShiftRight<22>(hn::Add(hn::Load(d, sums + i), rounding));
    hn::StoreU(hn::DemoteTo(d8, value), d8, out + i);
  }
}

const ResampleTable* ResampleTargetTable() {
  static const ResampleTable kTable = {hwy::TargetName(HWY_TARGET),
                                       FilterBandNarrow,
                                       FilterBandWide,
                                       FilterRows,
                                       AccumulateRow,
                                       FinishRow};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(ResampleTargetTable);

const ResampleTable& Resample() { return *HWY_DYNAMIC_DISPATCH(ResampleTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
