#include "server/imaging/filter_kernels.h"

#include <algorithm>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/filter_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI16 = hn::CappedTag<int16_t, 32>;
using DU8 = hn::Rebind<uint8_t, DI16>;
using DF32 = hn::CappedTag<float, 16>;

void Widen(const uint8_t* pixels, size_t count, int16_t* out) {
  const DI16 d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n)
    hn::StoreU(hn::ShiftLeft<6>(hn::PromoteTo(d, hn::LoadU(DU8(), pixels + i))), d, out + i);
  for (; i < count; ++i) out[i] = static_cast<int16_t>(pixels[i] << 6);
}

template <class V>
HWY_INLINE V Times(hn::DFromV<V>, V value, V weight) {
  if constexpr (sizeof(hn::TFromV<V>) == 2) {
    return hn::MulFixedPoint15(value, weight);
  } else {
    return hn::Mul(value, weight);
  }
}

template <class D, typename T>
HWY_INLINE void AlongRow(D d, const T* row, size_t count, size_t step, SymmetricWeights<T> filter,
                         T* out) {
  const size_t n = hn::Lanes(d);
  for (size_t i = 0; i < count; i += n) {
    auto sum = Times(d, hn::LoadU(d, row + i), hn::Set(d, filter.weights[0]));
    for (int k = 1; k <= filter.radius; ++k) {
      const T* const before = row + i - static_cast<size_t>(k) * step;
      const T* const behind = row + i + static_cast<size_t>(k) * step;
      sum = hn::Add(sum, Times(d, hn::Add(hn::LoadU(d, before), hn::LoadU(d, behind)),
                               hn::Set(d, filter.weights[k])));
    }
    hn::StoreU(sum, d, out + i);
  }
}

void AlongRowI16(const int16_t* row, size_t count, size_t step, SymmetricWeights<int16_t> filter,
                 int16_t* out) {
  AlongRow(DI16(), row, count, step, filter, out);
}
void AlongRowF32(const float* row, size_t count, size_t step, SymmetricWeights<float> filter,
                 float* out) {
  AlongRow(DF32(), row, count, step, filter, out);
}

// Calls store(sums, index) for whole vectors, the last of which may reach behind `count`.
template <class D, typename T, class Store>
HWY_INLINE void AcrossRows(D d, const T* const* rows, size_t count, SymmetricWeights<T> filter,
                           Store store) {
  const size_t n = hn::Lanes(d);
  const int middle = filter.radius;
  for (size_t i = 0; i < count; i += n) {
    auto sum = Times(d, hn::LoadU(d, rows[middle] + i), hn::Set(d, filter.weights[0]));
    for (int k = 1; k <= filter.radius; ++k) {
      sum = hn::Add(
          sum,
          Times(d, hn::Add(hn::LoadU(d, rows[middle - k] + i), hn::LoadU(d, rows[middle + k] + i)),
                hn::Set(d, filter.weights[k])));
    }
    store(sum, i);
  }
}

void AcrossRowsI16(const int16_t* const* rows, size_t count, SymmetricWeights<int16_t> filter,
                   uint8_t* out) {
  const DI16 d;
  const DU8 d8;
  AcrossRows(d, rows, count, filter, [&](hn::Vec<DI16> sum, size_t i) HWY_ATTR {
    const auto rounded = hn::ShiftRight<6>(hn::Add(sum, hn::Set(d, 32)));
    const auto bytes = hn::DemoteTo(d8, rounded);
    if (i + hn::Lanes(d) <= count) {
      hn::StoreU(bytes, d8, out + i);
      return;
    }
    HWY_ALIGN uint8_t last[hn::MaxLanes(d8)];
    hn::Store(bytes, d8, last);
    std::copy_n(last, count - i, out + i);
  });
}

void AcrossRowsF32(const float* const* rows, size_t count, SymmetricWeights<float> filter,
                   float* out) {
  const DF32 d;
  AcrossRows(d, rows, count, filter,
             [&](hn::Vec<DF32> sum, size_t i) HWY_ATTR { hn::StoreU(sum, d, out + i); });
}

void MeanRows(const uint8_t* const* rows, int number, size_t count, uint8_t* out) {
  // Exact for as many as there may be: tests/imaging/filter_test.cc.
  int places = 1;
  while (number >> (places + 1) != 0) ++places;
  const auto inverse = static_cast<uint16_t>(((65536 << places) + number - 1) / number);
  const auto half = static_cast<uint16_t>(number / 2);
  const hn::CappedTag<uint16_t, 32> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    auto sum = hn::Set(d, half);
    for (int k = 0; k < number; ++k)
      sum = hn::Add(sum, hn::PromoteTo(d, hn::LoadU(d8, rows[k] + i)));
    const auto mean = hn::ShiftRightSame(hn::MulHigh(sum, hn::Set(d, inverse)), places);
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, mean)), d8, out + i);
  }
  for (; i < count; ++i) {
    uint32_t sum = half;
    for (int k = 0; k < number; ++k) sum += rows[k][i];
    out[i] = static_cast<uint8_t>(sum * inverse >> 16 >> places);
  }
}

// (sum + 6) / 13 for sums up to 13 * 255.
HWY_INLINE int Thirteenth(int sum) { return ((sum + 6) * 5042) >> 16; }

// Pillow's blend, from `base` to `value`, cut off towards zero.
HWY_INLINE uint8_t BlendOne(int base, int value, float factor) {
  const float mixed = static_cast<float>(base) + factor * static_cast<float>(value - base);
  return static_cast<uint8_t>(std::min(std::max(mixed, 0.0f), 255.0f));
}

#if HWY_TARGET != HWY_SCALAR
// Sums of three rows, then of three neighbours of them: a block of kSharpenBlock at a time.
constexpr size_t kSharpenBlock = 512;

template <bool kWhole>
void SharpenBlock(const uint8_t* const* rows, size_t count, size_t step, float factor,
                  uint8_t* out) {
  const hn::CappedTag<int16_t, 32> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const hn::Repartition<int32_t, decltype(d)> d32;
  const hn::Repartition<float, decltype(d)> df;
  const hn::Repartition<uint16_t, decltype(d)> du;
  const hn::Half<decltype(d)> dh;
  const size_t n = hn::Lanes(d);
  const auto amount = hn::Set(df, factor);
  HWY_ALIGN int16_t sums[kSharpenBlock + 2 * 4 + hn::MaxLanes(d)];
  const auto load = [&](const uint8_t* at) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(d8, at)); };
  const size_t wanted = count + 2 * step;
  for (size_t i = 0; i < wanted; i += n) {
    const size_t at = std::min(i, wanted - n);
    const auto sum = hn::Add(load(rows[0] - step + at),
                             hn::Add(load(rows[1] - step + at), load(rows[2] - step + at)));
    hn::StoreU(sum, d, sums + at);
  }
  for (size_t i = 0; i < count; i += n) {
    const size_t at = std::min(i, count - n);
    const auto value = load(rows[1] + at);
    const auto across =
        hn::Add(hn::LoadU(d, sums + at),
                hn::Add(hn::LoadU(d, sums + at + step), hn::LoadU(d, sums + at + 2 * step)));
    const auto sum = hn::Add(hn::Add(across, hn::ShiftLeft<2>(value)), hn::Set(d, int16_t{6}));
    const auto smooth =
        hn::BitCast(d, hn::MulHigh(hn::BitCast(du, sum), hn::Set(du, uint16_t{5042})));
    const auto range = hn::Sub(value, smooth);
    if constexpr (kWhole) {
      const auto times = hn::Set(d, static_cast<int16_t>(factor));
      hn::StoreU(hn::DemoteTo(d8, hn::Add(smooth, hn::Mul(range, times))), d8, out + at);
      continue;
    }
    const auto mix = [&](auto base, auto change) HWY_ATTR {
      const auto mixed =
          hn::Add(hn::ConvertTo(df, base), hn::Mul(amount, hn::ConvertTo(df, change)));
      return hn::ConvertTo(d32, hn::Min(hn::Max(mixed, hn::Zero(df)), hn::Set(df, 255.0f)));
    };
    const auto low = mix(hn::PromoteTo(d32, hn::LowerHalf(dh, smooth)),
                         hn::PromoteTo(d32, hn::LowerHalf(dh, range)));
    const auto high = mix(hn::PromoteTo(d32, hn::UpperHalf(dh, smooth)),
                          hn::PromoteTo(d32, hn::UpperHalf(dh, range)));
    hn::StoreU(hn::DemoteTo(d8, hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low))), d8,
               out + at);
  }
}
#endif

void Sharpen(const uint8_t* const* rows, size_t count, size_t step, float factor, uint8_t* out) {
#if HWY_TARGET != HWY_SCALAR
  if (count >= 32) {  // as many as a vector has
    // Whole factors, where nothing is lost in 16 bits.
    const bool is_whole = factor <= 64 && factor == static_cast<float>(static_cast<int>(factor));
    for (size_t i = 0; i < count; i += kSharpenBlock) {
      // The last block begins early enough to have a vector.
      const size_t rest = count - i;
      const size_t at = rest < 32 ? count - 32 : i;
      const uint8_t* const from[3] = {rows[0] + at, rows[1] + at, rows[2] + at};
      const auto sharpen = is_whole ? SharpenBlock<true> : SharpenBlock<false>;
      sharpen(from, std::min(kSharpenBlock, count - at), step, factor, out + at);
    }
    return;
  }
#endif
  for (size_t i = 0; i < count; ++i) {
    int sum = 4 * rows[1][i];
    for (int row = 0; row < 3; ++row)
      sum += *(rows[row] + i - step) + rows[row][i] + rows[row][i + step];
    out[i] = BlendOne(Thirteenth(sum), rows[1][i], factor);
  }
}

template <class D>
HWY_INLINE void MixTablesAt(D d, const int32_t* four, const int32_t* offsets, const float* shares,
                            float down, const uint8_t* in, size_t i, uint8_t* out) {
  const hn::Rebind<float, D> df;
  const hn::Rebind<uint8_t, D> d8;
  const auto value = hn::PromoteTo(d, hn::LoadU(d8, in + i));
  const auto packed = hn::GatherIndex(d, four, hn::Add(hn::LoadU(d, offsets + i), value));
  const auto byte = [&](auto shifted)
                        HWY_ATTR { return hn::ConvertTo(df, hn::And(shifted, hn::Set(d, 255))); };
  const auto right = hn::LoadU(df, shares + i), left = hn::Sub(hn::Set(df, 1.0f), right);
  const auto above =
      hn::Add(hn::Mul(byte(packed), left), hn::Mul(byte(hn::ShiftRight<8>(packed)), right));
  const auto below = hn::Add(hn::Mul(byte(hn::ShiftRight<16>(packed)), left),
                             hn::Mul(byte(hn::ShiftRight<24>(packed)), right));
  const auto mixed =
      hn::Add(hn::Mul(above, hn::Set(df, 1.0f - down)), hn::Mul(below, hn::Set(df, down)));
  hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(mixed)), d8, out + i);
}

void MixTables(const int32_t* four, const int32_t* offsets, const float* shares, float down,
               const uint8_t* in, size_t count, uint8_t* out) {
  const hn::CappedTag<int32_t, 16> d;
  const size_t n = hn::Lanes(d);
  if (count < n) {
    const hn::CappedTag<int32_t, 1> one;
    for (size_t i = 0; i < count; ++i) MixTablesAt(one, four, offsets, shares, down, in, i, out);
    return;
  }
  for (size_t i = 0; i < count; i += n)
    MixTablesAt(d, four, offsets, shares, down, in, std::min(i, count - n), out);
}

const FilterTable* FilterTargetTable() {
  static const FilterTable kTable = {hwy::TargetName(HWY_TARGET),
                                     Widen,
                                     AlongRowI16,
                                     AlongRowF32,
                                     AcrossRowsI16,
                                     AcrossRowsF32,
                                     MeanRows,
                                     Sharpen,
                                     MixTables};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(FilterTargetTable);

const FilterTable& Filters() { return *HWY_DYNAMIC_DISPATCH(FilterTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
