#include "server/codec/kernels.h"

#include <cstring>

// Sizeless vectors (SVE, RISC-V) cannot be stored in arrays, which the transposes need; NEON is
// there wherever SVE is.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU8 = hn::CappedTag<uint8_t, 32>;
using DI16 = hn::CappedTag<int16_t, 16>;
using DI32 = hn::CappedTag<int32_t, 16>;
using DI16Row = hn::CappedTag<int16_t, 32>;  // where no band is 16 rows high
using DU8Half = hn::Rebind<uint8_t, DI16>;   // as many as DI16
using DI16Half = hn::Rebind<int16_t, DI32>;  // as many as DI32
using VI16 = hn::Vec<DI16>;

constexpr int kFilteredBits = 6;  // binary places after a filter

#if HWY_TARGET == HWY_SCALAR

template <int kShift>
HWY_INLINE void TransposeBlock(const uint8_t* const* rows, size_t at, int16_t* columns) {
  for (size_t r = 0; r < 16; ++r)
    columns[at * 16 + r] = static_cast<int16_t>(rows[r][at] << kShift);
}

HWY_INLINE void UntransposeBlock(const int16_t* columns, size_t x, int16_t* const* rows) {
  for (size_t i = 0; i < 8; ++i) {
    for (size_t r = 0; r < 16; ++r) rows[r][x + i] = columns[(x + i) * 16 + r];
  }
}

#else  // a vector has one or two blocks of 16 bytes

// A perfect shuffle: the first half of the 16 rows interleaved with the second. Four of them
// transpose 16 x 16.
template <class D, class V, int kRows>
HWY_INLINE void Shuffle(D d, const V (&in)[kRows], V (&out)[kRows]) {
  for (int i = 0; i < kRows / 2; ++i) {
    out[2 * i] = hn::InterleaveLower(d, in[i], in[i + kRows / 2]);
    out[2 * i + 1] = hn::InterleaveUpper(d, in[i], in[i + kRows / 2]);
  }
}

template <int kShift>
HWY_INLINE void TransposeBlock(const uint8_t* const* rows, size_t at, int16_t* columns) {
  const DU8 d;
  const DI16 d16;
  const DU8Half half;
  hn::Vec<DU8> a[16], b[16];
  for (int r = 0; r < 16; ++r) a[r] = hn::LoadU(d, rows[r] + at);
  Shuffle(d, a, b);
  Shuffle(d, b, a);
  Shuffle(d, a, b);
  Shuffle(d, b, a);
  // Of 32 lanes, vector i holds column i in its lower half and column 16 + i in its upper half; of
  // 16, column i alone.
  constexpr size_t kColumns = hn::MaxLanes(d) == 32 ? 16 : 0, kRows = hn::MaxLanes(d) == 32 ? 0 : 8;
  for (size_t i = 0; i < 16; ++i) {
    const auto lower = hn::PromoteTo(d16, hn::LowerHalf(half, a[i])),
               upper = hn::PromoteTo(d16, hn::UpperHalf(half, a[i]));
    hn::Store(hn::ShiftLeft<kShift>(lower), d16, columns + (at + i) * 16);
    hn::Store(hn::ShiftLeft<kShift>(upper), d16, columns + (at + kColumns + i) * 16 + kRows);
  }
}

template <class D>
HWY_INLINE void UntransposeVectors(D d, const int16_t* columns, size_t x, int16_t* const* rows) {
  const hn::FixedTag<int16_t, 8> block;
  for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
    hn::Vec<D> a[8], b[8];
    for (size_t i = 0; i < 8; ++i) a[i] = hn::Load(d, columns + (x + i) * 16 + part);
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
}

HWY_INLINE void UntransposeBlock(const int16_t* columns, size_t x, int16_t* const* rows) {
  UntransposeVectors(DI16(), columns, x, rows);
}

#endif  // HWY_TARGET == HWY_SCALAR

template <int kShift>
HWY_INLINE void TransposeAll(const uint8_t* const* rows, size_t count, int16_t* columns) {
  const size_t step = hn::Lanes(DU8());
  size_t at = 0;
  for (; at + step <= count; at += step) TransposeBlock<kShift>(rows, at, columns);
  if (at == count) return;
  uint8_t tail[16][32] = {};
  const uint8_t* tails[16];
  for (int r = 0; r < 16; ++r) {
    std::memcpy(tail[r], rows[r] + at, count - at);
    tails[r] = tail[r];
  }
  TransposeBlock<kShift>(tails, 0, columns + at * 16);
}

void Transpose(const uint8_t* const* rows, size_t count, int shift, int16_t* columns) {
  if (shift == 0) {
    TransposeAll<0>(rows, count, columns);
  } else {
    TransposeAll<7>(rows, count, columns);
  }
}

// To samples << 7, within the range of a sample: Pillow clips between the axes too.
HWY_INLINE VI16 ToNextFilter(VI16 filtered) {
  const DI16 d;
  return hn::ShiftLeft<1>(
      hn::Min(hn::Max(filtered, hn::Zero(d)), hn::Set(d, 255 << kFilteredBits)));
}

template <int kTaps, int kChannels>
HWY_INLINE void FilterColumnsNarrowT(const int16_t* HWY_RESTRICT columns,
                                     const int32_t* HWY_RESTRICT start,
                                     const int16_t* HWY_RESTRICT weights, int count, bool reversed,
                                     size_t plane, int16_t* HWY_RESTRICT out) {
  const DI16 d;
  for (int x = 0; x < count; ++x) {
    const int16_t* in = columns + static_cast<ptrdiff_t>(start[x]) * (kChannels * 16);
    const int16_t* w = weights + static_cast<ptrdiff_t>(x) * kTaps;
    int16_t* to = out + (reversed ? count - 1 - x : x) * 16;
    for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
      VI16 sum[kChannels];
      for (int c = 0; c < kChannels; ++c) {
        sum[c] = hn::MulFixedPoint15(hn::Load(d, in + c * 16 + part), hn::Set(d, w[0]));
      }
      for (int k = 1; k < kTaps; ++k) {
        const auto weight = hn::Set(d, w[k]);
        for (int c = 0; c < kChannels; ++c) {
          const auto sample = hn::Load(d, in + (k * kChannels + c) * 16 + part);
          sum[c] = hn::Add(sum[c], hn::MulFixedPoint15(sample, weight));
        }
      }
      for (int c = 0; c < kChannels; ++c)
        hn::Store(ToNextFilter(sum[c]), d, to + c * plane * 16 + part);
    }
  }
}

template <int kChannels>
HWY_INLINE void FilterColumnsNarrowC(const int16_t* columns, const int32_t* start,
                                     const int16_t* weights, int taps, int count, bool reversed,
                                     size_t plane, int16_t* out) {
  switch (taps) {
#define FW_TAPS(n) \
  case n:          \
    return FilterColumnsNarrowT<n, kChannels>(columns, start, weights, count, reversed, plane, out);
    FW_TAPS(1) FW_TAPS(2) FW_TAPS(3) FW_TAPS(4) FW_TAPS(5) FW_TAPS(6) FW_TAPS(7) FW_TAPS(8)
#undef FW_TAPS
  }
}

void FilterColumnsNarrow(const int16_t* columns, int channels, const int32_t* start,
                         const int16_t* weights, int taps, int count, bool reversed, size_t plane,
                         int16_t* out) {
  switch (channels) {
    case 1:
      return FilterColumnsNarrowC<1>(columns, start, weights, taps, count, reversed, plane, out);
    case 2:
      return FilterColumnsNarrowC<2>(columns, start, weights, taps, count, reversed, plane, out);
    case 3:
      return FilterColumnsNarrowC<3>(columns, start, weights, taps, count, reversed, plane, out);
    case 4:
      return FilterColumnsNarrowC<4>(columns, start, weights, taps, count, reversed, plane, out);
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
      const int16_t* in = columns + (static_cast<ptrdiff_t>(start[x]) * channels + c) * 16;
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

void Untranspose(const int16_t* columns, size_t count, int16_t* const* rows) {
  for (size_t x = 0; x < count; x += 8) UntransposeBlock(columns, x, rows);
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
    FW_TAPS(1) FW_TAPS(2) FW_TAPS(3) FW_TAPS(4) FW_TAPS(5) FW_TAPS(6) FW_TAPS(7) FW_TAPS(8)
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

void Deinterleave3(const uint8_t* HWY_RESTRICT pixels, size_t count, size_t plane,
                   uint8_t* HWY_RESTRICT out) {
  const DU8 d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::Vec<DU8> r, g, b;
    hn::LoadInterleaved3(d, pixels + 3 * i, r, g, b);
    hn::StoreU(r, d, out + i);
    hn::StoreU(g, d, out + plane + i);
    hn::StoreU(b, d, out + 2 * plane + i);
  }
  for (; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) out[c * plane + i] = pixels[3 * i + c];
  }
}

template <typename T>
HWY_INLINE void Interleave3(const T* HWY_RESTRICT planes, size_t plane, size_t count,
                            T* HWY_RESTRICT out) {
  const hn::CappedTag<T, 32 / sizeof(T)> d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreInterleaved3(hn::LoadU(d, planes + i), hn::LoadU(d, planes + plane + i),
                          hn::LoadU(d, planes + 2 * plane + i), d, out + 3 * i);
  }
  for (; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) out[3 * i + c] = planes[c * plane + i];
  }
}

void Interleave3U8(const uint8_t* planes, size_t plane, size_t count, uint8_t* out) {
  Interleave3(planes, plane, count, out);
}
void Interleave3U16(const uint16_t* planes, size_t plane, size_t count, uint16_t* out) {
  Interleave3(planes, plane, count, out);
}
void Interleave3F32(const float* planes, size_t plane, size_t count, float* out) {
  Interleave3(planes, plane, count, out);
}

using DF32 = hn::Rebind<float, DI32>;
using DU32 = hn::Rebind<uint32_t, DI32>;

HWY_INLINE hn::Vec<DF32> Affine(const uint8_t* in, hn::Vec<DF32> mean, hn::Vec<DF32> scale) {
  const hn::Rebind<uint8_t, DI32> d8;
  const auto value = hn::ConvertTo(DF32(), hn::PromoteTo(DI32(), hn::LoadU(d8, in)));
  return hn::Mul(hn::Sub(value, mean), scale);
}

// Calls store(out, vector) for whole vectors, and through a buffer for the rest.
template <typename T, class Convert>
HWY_INLINE void ConvertRow(const uint8_t* in, size_t count, float mean, float scale, T* out,
                           Convert convert) {
  const DF32 d;
  const size_t n = hn::Lanes(d);
  const auto m = hn::Set(d, mean), s = hn::Set(d, scale);
  size_t i = 0;
  for (; i + n <= count; i += n) convert(Affine(in + i, m, s), out + i);
  if (i == count) return;
  uint8_t tail[hn::MaxLanes(d)] = {};
  HWY_ALIGN T converted[hn::MaxLanes(d)];
  std::memcpy(tail, in + i, count - i);
  convert(Affine(tail, m, s), converted);
  std::memcpy(out + i, converted, (count - i) * sizeof(T));
}

void ToF32(const uint8_t* in, size_t count, float mean, float scale, float* out) {
  ConvertRow(in, count, mean, scale, out,
             [](hn::Vec<DF32> v, float* to) HWY_ATTR { hn::StoreU(v, DF32(), to); });
}

// Rounds to nearest even by integer arithmetic, since not every target has an instruction that
// does. Subnormal results come from adding 0.5, whose last mantissa bit weighs as much as a half's
// smallest step.
HWY_INLINE hn::Vec<DU32> ToHalfBits(hn::Vec<DF32> v) {
  const DU32 d;
  const auto bits = hn::BitCast(d, v);
  const auto sign = hn::And(bits, hn::Set(d, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(d, 0xC8000FFFu)),
                                                 odd));  // exponent - 112, and half a step less
  const auto half = hn::Set(DF32(), 0.5f);
  const auto subnormal =
      hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(DF32(), magnitude), half)), hn::BitCast(d, half));
  const auto nan = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000u)), hn::Set(d, 0x7E00u),
                                  hn::Set(d, 0x7C00u));
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x38800000u)), subnormal, normal);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x477FFFFFu)), nan, result);
  return hn::Or(result, hn::ShiftRight<16>(sign));
}

HWY_INLINE hn::Vec<DU32> ToBFloatBits(hn::Vec<DF32> v) {
  const DU32 d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7FFF)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40));
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000u)), quiet, rounded);
}

HWY_INLINE void Store16(hn::Vec<DU32> bits, uint16_t* to) {
  const hn::Rebind<uint16_t, DI32> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(DI32(), bits)), d16, to);
}

void ToF16(const uint8_t* in, size_t count, float mean, float scale, uint16_t* out) {
  ConvertRow(in, count, mean, scale, out,
             [](hn::Vec<DF32> v, uint16_t* to) HWY_ATTR { Store16(ToHalfBits(v), to); });
}
void ToBF16(const uint8_t* in, size_t count, float mean, float scale, uint16_t* out) {
  ConvertRow(in, count, mean, scale, out,
             [](hn::Vec<DF32> v, uint16_t* to) HWY_ATTR { Store16(ToBFloatBits(v), to); });
}

const Table* TargetTable() {
  static const Table kTable = {hwy::TargetName(HWY_TARGET),
                               Transpose,
                               FilterColumnsNarrow,
                               FilterColumnsWide,
                               Untranspose,
                               FilterRows,
                               AccumulateRow,
                               FinishRow,
                               Deinterleave3,
                               Interleave3U8,
                               Interleave3U16,
                               Interleave3F32,
                               ToF32,
                               ToF16,
                               ToBF16};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(TargetTable);

const Table& Active() { return *HWY_DYNAMIC_DISPATCH(TargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
