// YCC to RGB with libjpeg's 16-bit fixed point, in 16-bit lanes:
//   R = Y + r + half(2r * 0.402), B = Y + 2b - half(2b * 0.228), G = Y - r + (-0.344 b + 0.286 r)
// where b and r are Cb and Cr less 128. Equal to the C formulas for all 2^24 inputs.
#if defined(FEEDWATER_CODEC_JPEG_COLOUR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FEEDWATER_CODEC_JPEG_COLOUR_INL_H_
#undef FEEDWATER_CODEC_JPEG_COLOUR_INL_H_
#else
#define FEEDWATER_CODEC_JPEG_COLOUR_INL_H_
#endif

#include <cstring>

#include "server/codec/jpeg/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using DByte = hn::CappedTag<uint8_t, 64>;
using DWord = hn::Repartition<int16_t, DByte>;
using VWord = hn::Vec<DWord>;

struct RgbWords {
  VWord r, g, b;
};

HWY_INLINE RgbWords ToRgb(VWord y, VWord b, VWord r) {
  const DWord d;
  const hn::RepartitionToWide<DWord> d32;
  const auto centre = hn::Set(d, 128), one = hn::Set(d, 1);
  b = hn::Sub(b, centre);
  r = hn::Sub(r, centre);
  const auto b2 = hn::Add(b, b), r2 = hn::Add(r, r);
  const auto red = hn::ShiftRight<1>(hn::Add(hn::MulHigh(r2, hn::Set(d, 26345)), one));
  const auto blue = hn::ShiftRight<1>(hn::Add(hn::MulHigh(b2, hn::Set(d, -14942)), one));
  const auto factors = SetPairs(d, -22554, 18734);
  const auto rounding = hn::Set(d32, 32768);
  const auto lower =
      hn::ShiftRight<16>(AddDotPairs(rounding, hn::InterleaveLower(d, b, r), factors));
  const auto upper =
      hn::ShiftRight<16>(AddDotPairs(rounding, hn::InterleaveUpper(d, b, r), factors));
  return {hn::Add(hn::Add(y, r), red),
          hn::Add(y, hn::Sub(hn::ReorderDemote2To(d, lower, upper), r)),
          hn::Add(hn::Add(y, b2), blue)};
}

inline void YccToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, size_t count,
                     uint8_t* rgb) {
  const DByte d;
  const DWord d16;
  const auto zero = hn::Zero(d);
  const auto lower = [&](hn::Vec<DByte> v)
                         HWY_ATTR { return hn::BitCast(d16, hn::InterleaveLower(d, v, zero)); };
  const auto upper = [&](hn::Vec<DByte> v)
                         HWY_ATTR { return hn::BitCast(d16, hn::InterleaveUpper(d, v, zero)); };
  const auto convert = [&](size_t at, uint8_t* to) HWY_ATTR {
    const auto vy = hn::LoadU(d, y + at), vb = hn::LoadU(d, cb + at), vr = hn::LoadU(d, cr + at);
    const RgbWords l = ToRgb(lower(vy), lower(vb), lower(vr));
    const RgbWords u = ToRgb(upper(vy), upper(vb), upper(vr));
    hn::StoreInterleaved3(PackUnsigned(l.r, u.r), PackUnsigned(l.g, u.g), PackUnsigned(l.b, u.b), d,
                          to);
  };
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) convert(i, rgb + 3 * i);
  if (i == count) return;
  HWY_ALIGN uint8_t tail[3 * hn::MaxLanes(d)];  // 3 * n may be more than the row's padding
  convert(i, tail);
  std::memcpy(rgb + 3 * i, tail, 3 * (count - i));
}

inline void GrayToRgb(const uint8_t* y, size_t count, uint8_t* rgb) {
  const DByte d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    const auto v = hn::LoadU(d, y + i);
    hn::StoreInterleaved3(v, v, v, d, rgb + 3 * i);
  }
  for (; i < count; ++i) std::memset(rgb + 3 * i, y[i], 3);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#endif  // FEEDWATER_CODEC_JPEG_COLOUR_INL_H_
