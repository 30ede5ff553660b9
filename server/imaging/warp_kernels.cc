#include "server/imaging/warp_kernels.h"

#include <algorithm>
#include <cstring>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/warp_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kOne = 1 << kWarpBits;

using D64 = hn::CappedTag<uint64_t, 8>;
using DI64 = hn::Rebind<int64_t, D64>;
using DF64 = hn::Rebind<double, D64>;
using DF32 = hn::Rebind<float, D64>;
using D32 = hn::Rebind<uint32_t, D64>;
using DI32 = hn::Rebind<int32_t, D64>;
using DI16 = hn::Repartition<int16_t, D64>;

template <bool kAffine, bool kAdds>
HWY_INLINE void RowPlaces(const WarpRow& row, size_t first, size_t count, WarpPlaces* places) {
  const DF64 d;
  const DI32 d32;
  const size_t n = hn::Lanes(d);
  const auto one = hn::Set(d, double{kOne});
  const auto x_step = hn::Set(d, row.x_step), x_start = hn::Set(d, row.x_start);
  const auto y_step = hn::Set(d, row.y_step), y_start = hn::Set(d, row.y_start);
  const auto w_step = hn::Set(d, row.w_step), w_start = hn::Set(d, row.w_start);
  HWY_ALIGN double lanes[hn::MaxLanes(d)];
  for (size_t i = 0; i < n; ++i) lanes[i] = static_cast<double>(first + i) + 0.5;
  auto column = hn::Load(d, lanes);
  const auto next = hn::Set(d, static_cast<double>(n));
  for (size_t i = 0; i < count; i += n) {
    auto x = hn::Add(hn::Mul(column, x_step), x_start);
    auto y = hn::Add(hn::Mul(column, y_step), y_start);
    if constexpr (!kAffine) {
      // The horizon itself is far away, but a number. w may be negative all over the image: its
      // sign says only which side of the horizon the result's first pixel is on.
      const auto w = hn::Add(hn::Mul(column, w_step), w_start), least = hn::Set(d, 1e-9);
      const auto share =
          hn::Div(hn::Set(d, 1.0), hn::IfThenElse(hn::Lt(hn::Abs(w), least), least, w));
      x = hn::Mul(x, share);
      y = hn::Mul(y, share);
    }
    if constexpr (kAdds) {
      const DF32 df;
      const float* add_x = row.add_x + first + i;
      const float* add_y = row.add_y + first + i;
      HWY_ALIGN float last[2][hn::MaxLanes(d)] = {};
      if (i + n > count) {  // what stands behind the row may not be read
        add_x = std::copy_n(add_x, count - i, last[0]) - (count - i);
        add_y = std::copy_n(add_y, count - i, last[1]) - (count - i);
      }
      x = hn::Add(x, hn::PromoteTo(d, hn::LoadU(df, add_x)));
      y = hn::Add(y, hn::PromoteTo(d, hn::LoadU(df, add_y)));
    }
    hn::Store(hn::DemoteTo(d32, hn::Floor(hn::Mul(x, one))), d32, places->x + i);
    hn::Store(hn::DemoteTo(d32, hn::Floor(hn::Mul(y, one))), d32, places->y + i);
    column = hn::Add(column, next);
  }
}

void Places(const WarpRow& row, size_t first, size_t count, WarpPlaces* places) {
  if (row.add_x != nullptr) {
    row.is_affine ? RowPlaces<true, true>(row, first, count, places)
                  : RowPlaces<false, true>(row, first, count, places);
  } else {
    row.is_affine ? RowPlaces<true, false>(row, first, count, places)
                  : RowPlaces<false, false>(row, first, count, places);
  }
}

// As hn::MulFixedPoint15.
HWY_INLINE int MulHigh(int a, int b) { return (a * b + 16384) >> 15; }

// Results are cut off, not rounded, as Pillow's.
//
// One pixel, where the four around it are not all there: the fill outside, the edge repeated
// inside.
template <int C>
void BilinearPixel(const WarpSource& source, int x, int y, uint8_t* out) {
  const auto inside = [](int place, int size) { return place >= 0 && (place >> kWarpBits) < size; };
  if (!inside(x, source.width) || !inside(y, source.height)) {
    std::memcpy(out, source.fill, C);
    return;
  }
  const int u = x - kOne / 2, v = y - kOne / 2;
  const auto at = [](int place, int size) { return std::clamp(place, 0, size - 1); };
  const int left = at(u >> kWarpBits, source.width), right = at((u >> kWarpBits) + 1, source.width);
  const int wx = u & (kOne - 1), wy = v & (kOne - 1);
  const auto row = [&](int place) {
    return source.pixels + static_cast<size_t>(at(place, source.height)) * source.width * C;
  };
  const uint8_t* const top = row(v >> kWarpBits);
  const uint8_t* const bottom = row((v >> kWarpBits) + 1);
  for (int c = 0; c < C; ++c) {
    const auto down = [&](int column) {
      const size_t i = static_cast<size_t>(column) * C + c;
      return (top[i] << 6) + MulHigh((bottom[i] - top[i]) * 64, wy);
    };
    const int a = down(left), b = down(right);
    out[c] = static_cast<uint8_t>((a + MulHigh(b - a, wx)) >> 6);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Two neighbouring pixels as they lie in memory, to one in each half of the lane.
template <int C, class V>
HWY_INLINE V Spread(V v) {
  const D64 d;
  if constexpr (C == 4) return v;
  const uint64_t pixel = C == 3 ? 0xFFFFFF : 0xFF;
  return hn::Or(hn::And(v, hn::Set(d, pixel)),
                hn::And(hn::ShiftLeft<32 - 8 * C>(v), hn::Set(d, pixel << 32)));
}

// A weight in all four 16-bit places of its lane.
template <class V32>
HWY_INLINE auto Weights(V32 place) {
  const D32 d;
  const auto weight = hn::And(place, hn::Set(d, kOne - 1));
  const auto pair = hn::PromoteTo(D64(), hn::Or(weight, hn::ShiftLeft<16>(weight)));
  return hn::BitCast(DI16(), hn::Or(pair, hn::ShiftLeft<32>(pair)));
}

// Between `top` and `bottom`, then between the halves of each lane, of every second byte: the lower
// half of the lane.
template <class V, class W>
HWY_INLINE V Blend(V top, V bottom, W wx, W wy) {
  const D64 d;
  const DI16 d16;
  const auto bytes = hn::Set(d, 0x00FF00FF00FF00FFull);
  const auto a = hn::ShiftLeft<6>(hn::BitCast(d16, hn::And(top, bytes)));
  const auto b = hn::ShiftLeft<6>(hn::BitCast(d16, hn::And(bottom, bytes)));
  const auto left = hn::Add(a, hn::MulFixedPoint15(hn::Sub(b, a), wy));
  const auto right = hn::BitCast(d16, hn::ShiftRight<32>(hn::BitCast(d, left)));
  const auto mixed = hn::Add(left, hn::MulFixedPoint15(hn::Sub(right, left), wx));
  return hn::BitCast(d, hn::ShiftRight<6>(mixed));
}

template <int C>
HWY_INLINE void Pack(const uint32_t* pixels, size_t count, uint8_t* out) {
  if constexpr (C == 4) {
    std::memcpy(out, pixels, count * 4);
    return;
  }
  const hn::CappedTag<uint8_t, 32> d;
  const size_t n = hn::Lanes(d);
  const auto* from = reinterpret_cast<const uint8_t*>(pixels);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::Vec<decltype(d)> r, g, b, a;
    hn::LoadInterleaved4(d, from + 4 * i, r, g, b, a);
    if constexpr (C == 3) {
      hn::StoreInterleaved3(r, g, b, d, out + 3 * i);
    } else {
      hn::StoreU(r, d, out + i);
    }
  }
  for (; i < count; ++i) std::memcpy(out + C * i, from + 4 * i, C);
}

template <int C>
void Bilinear(const WarpSource& source, const WarpPlaces& places, size_t count, uint8_t* out) {
  const D64 d;
  const DI32 di32;
  const D32 d32;
  const size_t n = hn::Lanes(d);
  // A lane's eight bytes lie within the image as far left and up as this.
  constexpr int kReach = (8 + C - 1) / C;
  const auto zero = hn::Zero(di32);
  const auto last_x = hn::Set(di32, source.width - kReach),
             last_y = hn::Set(di32, source.height - 2);
  const auto half = hn::Set(di32, kOne / 2);
  const uint32_t stride = static_cast<uint32_t>(source.width) * C;
  const auto* const top_row = reinterpret_cast<const uint64_t*>(source.pixels);
  const auto* const bottom_row = reinterpret_cast<const uint64_t*>(source.pixels + stride);
  const bool is_wide = source.width < kReach || source.height < 2 ||
                       static_cast<uint64_t>(stride) * source.height > 0xFFFFFFFFu;
  uint32_t fill = 0;
  std::memcpy(&fill, source.fill, C);
  HWY_ALIGN uint32_t pixels[kWarpBlock];
  for (size_t i = 0; i < count; i += n) {
    const auto u = hn::Sub(hn::Load(di32, places.x + i), half);
    const auto v = hn::Sub(hn::Load(di32, places.y + i), half);
    const auto column = hn::ShiftRight<kWarpBits>(u), row = hn::ShiftRight<kWarpBits>(v);
    const auto inside = hn::And(hn::Eq(column, hn::Min(hn::Max(column, zero), last_x)),
                                hn::Eq(row, hn::Min(hn::Max(row, zero), last_y)));
    if (is_wide || !hn::AllTrue(di32, inside)) {
      const auto x = hn::ShiftRight<kWarpBits>(hn::Load(di32, places.x + i));
      const auto y = hn::ShiftRight<kWarpBits>(hn::Load(di32, places.y + i));
      const auto shown =
          hn::And(hn::Eq(x, hn::Min(hn::Max(x, zero), hn::Set(di32, source.width - 1))),
                  hn::Eq(y, hn::Min(hn::Max(y, zero), hn::Set(di32, source.height - 1))));
      if (hn::AllFalse(di32, shown)) {
        hn::Store(hn::Set(d32, fill), d32, pixels + i);
        continue;
      }
      for (size_t k = i; k < std::min(i + n, count); ++k) {
        BilinearPixel<C>(source, places.x[k], places.y[k], reinterpret_cast<uint8_t*>(pixels + k));
      }
      continue;
    }
    const auto at = hn::Add(hn::Mul(hn::BitCast(d32, row), hn::Set(d32, stride)),
                            hn::Mul(hn::BitCast(d32, column), hn::Set(d32, uint32_t{C})));
    const auto offset = hn::BitCast(DI64(), hn::PromoteTo(d, at));
    const auto top = Spread<C>(hn::GatherOffset(d, top_row, offset));
    const auto bottom = Spread<C>(hn::GatherOffset(d, bottom_row, offset));
    const auto wx = Weights(hn::BitCast(d32, u)), wy = Weights(hn::BitCast(d32, v));
    auto mixed = Blend(top, bottom, wx, wy);
    if constexpr (C > 1) {
      const auto second = Blend(hn::ShiftRight<8>(top), hn::ShiftRight<8>(bottom), wx, wy);
      mixed = hn::Or(mixed, hn::ShiftLeft<8>(second));
    }
    hn::Store(hn::TruncateTo(d32, mixed), d32, pixels + i);
  }
  Pack<C>(pixels, count, out);
}

#else  // lanes of 64 bits that cannot be looked at as smaller ones
template <int C>
void Bilinear(const WarpSource& source, const WarpPlaces& places, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i)
    BilinearPixel<C>(source, places.x[i], places.y[i], out + i * C);
}
#endif

const WarpTable* WarpTargetTable() {
  static const WarpTable kTable = {hwy::TargetName(HWY_TARGET),
                                   Places,
                                   {nullptr, Bilinear<1>, nullptr, Bilinear<3>, Bilinear<4>}};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(WarpTargetTable);

const WarpTable& Warps() { return *HWY_DYNAMIC_DISPATCH(WarpTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
