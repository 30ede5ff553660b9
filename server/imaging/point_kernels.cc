#include "server/imaging/point_kernels.h"

#include <algorithm>
#include <cstring>

#include "server/imaging/point_arithmetic.h"

// As in codec/resample_kernels.cc. AVX3_DL has look-ups in tables of 128 bytes.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/point_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "server/imaging/point_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

constexpr bool kFastLookUp = false;

void LookUp(const uint8_t* table, const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = table[in[i]];
}
void MapLine(const Line& line, const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = line.At(in[i]);
}
void MapBits(const Bits& bits, const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = bits.At(in[i]);
}
uint64_t Sum(const uint8_t* in, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += in[i];
  return sum;
}
void Extremes(const uint8_t* in, size_t count, uint8_t* low, uint8_t* high) {
  for (size_t i = 0; i < count; ++i) {
    *low = std::min(*low, in[i]);
    *high = std::max(*high, in[i]);
  }
}
void Luma(const uint8_t* planes, size_t plane, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i)
    out[i] = pillow::Luma(planes[i], planes[plane + i], planes[2 * plane + i]);
}
void Saturate(float factor, uint8_t* planes, size_t plane, size_t count) {
  for (size_t i = 0; i < count; ++i, ++planes) {
    const uint8_t grey = pillow::Luma(planes[0], planes[plane], planes[2 * plane]);
    for (int c = 0; c < 3; ++c) {
      planes[c * plane] = pillow::Blend(grey, planes[c * plane], factor);
    }
  }
}
void SaturateByLine(const Line& line, uint8_t* planes, size_t plane, size_t count) {
  for (size_t i = 0; i < count; ++i, ++planes) {
    const int grey = pillow::Luma(planes[0], planes[plane], planes[2 * plane]);
    for (int c = 0; c < 3; ++c) {
      const int d = planes[c * plane] - grey;
      planes[c * plane] = static_cast<uint8_t>(
          std::clamp(grey + d * line.whole + ((d * line.fraction) >> 16), 0, 255));
    }
  }
}
void ShiftHue(uint8_t shift, uint8_t* planes, size_t plane, size_t count) {
  for (size_t i = 0; i < count; ++i, ++planes)
    pillow::ShiftHue(shift, planes, planes + plane, planes + 2 * plane);
}
void ToHsv(uint8_t* planes, size_t plane, size_t count) {
  for (size_t i = 0; i < count; ++i, ++planes) {
    const pillow::Hsv hsv = pillow::ToHsv(planes[0], planes[plane], planes[2 * plane]);
    planes[0] = hsv.hue, planes[plane] = hsv.saturation, planes[2 * plane] = hsv.value;
  }
}

#else

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
constexpr bool kFastLookUp = true;
void LookUp(const uint8_t* table, const uint8_t* in, size_t count, uint8_t* out) {
  const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64),
                t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
  Map(in, count, out, [&](V8 v) HWY_ATTR {
    const __m512i low = _mm512_permutex2var_epi8(t0, v.raw, t1);
    const __m512i high = _mm512_permutex2var_epi8(t2, v.raw, t3);
    return V8{_mm512_mask_blend_epi8(_mm512_movepi8_mask(v.raw), low, high)};
  });
}
#elif defined(FW_POINT_X86)
constexpr bool kFastLookUp = false;
// Each shuffle gives nothing where bit 7 of its index is set. Subtracting 16 at a time, value v
// passes through tables 0 .. v / 16 of its half; each holds its values combined with those of the
// one before, so that only the last one's stay.
void LookUp(const uint8_t* table, const uint8_t* in, size_t count, uint8_t* out) {
  const D8 d;
  const hn::RebindToSigned<D8> di;
  V8 steps[16];
  for (int k = 0; k < 16; ++k) {
    steps[k] = hn::LoadDup128(d, table + 16 * k);
    if (k % 8 != 0) steps[k] = hn::Xor(steps[k], hn::LoadDup128(d, table + 16 * k - 16));
  }
  const auto sixteen = hn::Set(di, 16);
  Map(in, count, out, [&](V8 v) HWY_ATTR {
    auto low = hn::BitCast(di, v), high = hn::BitCast(di, hn::Xor(v, hn::Set(d, 128)));
    V8 result = hn::Zero(d);
    for (int k = 0; k < 8; ++k) {
      result = hn::Xor(result, hn::TableLookupBytesOr0(steps[k], hn::BitCast(d, low)));
      result = hn::Xor(result, hn::TableLookupBytesOr0(steps[8 + k], hn::BitCast(d, high)));
      low = hn::SaturatedSub(low, sixteen);
      high = hn::SaturatedSub(high, sixteen);
    }
    return result;
  });
}
#else
constexpr bool kFastLookUp = false;
void LookUp(const uint8_t* table, const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = table[in[i]];
}
#endif

void MapLine(const Line& line, const uint8_t* in, size_t count, uint8_t* out) {
  const DI16 d;
  const D16 du;
  const auto whole = hn::Set(d, line.whole), fraction = hn::Set(d, line.fraction);
  const auto offset = hn::Set(d, static_cast<int16_t>(line.offset >> 16));
  const int carry_from = 0x10000 - (line.offset & 0xFFFF);
  if (carry_from == 0x10000) {  // the lower 16 bits never carry
    Map(in, count, out, [&](V8 v) HWY_ATTR {
      VI16 v16[2];
      Widen(v, v16);
      for (VI16& x : v16) {
        x = hn::SaturatedAdd(hn::Add(hn::Mul(x, whole), hn::MulHigh(x, fraction)), offset);
      }
      return NarrowTo8(v16[0], v16[1]);
    });
    return;
  }
  const auto from = hn::Set(du, static_cast<uint16_t>(carry_from));
  Map(in, count, out, [&](V8 v) HWY_ATTR {
    VI16 v16[2];
    Widen(v, v16);
    for (VI16& x : v16) {
      const auto low = hn::BitCast(du, hn::Mul(x, fraction));
      const auto carries = hn::VecFromMask(du, hn::Eq(hn::Max(low, from), low));
      const auto sum =
          hn::Sub(hn::Add(hn::Mul(x, whole), hn::MulHigh(x, fraction)), hn::BitCast(d, carries));
      x = hn::SaturatedAdd(sum, offset);
    }
    return NarrowTo8(v16[0], v16[1]);
  });
}

void MapBits(const Bits& bits, const uint8_t* in, size_t count, uint8_t* out) {
  const D8 d;
  const auto threshold = hn::Set(d, bits.threshold), flip = hn::Set(d, bits.flip),
             keep = hn::Set(d, bits.keep);
  if (bits.threshold == 0) {
    Map(in, count, out, [&](V8 v) HWY_ATTR { return hn::And(hn::Xor(v, flip), keep); });
    return;
  }
  Map(in, count, out, [&](V8 v) HWY_ATTR {
    const auto is_above = hn::Eq(hn::Max(v, threshold), v);
    return hn::And(hn::Xor(v, hn::IfThenElseZero(is_above, flip)), keep);
  });
}

uint64_t Sum(const uint8_t* in, size_t count) {
  const D8 d;
  const hn::Repartition<uint64_t, D8> d64;
  const size_t n = hn::Lanes(d);
  auto sums = hn::Zero(d64);
  size_t i = 0;
  for (; i + n <= count; i += n) sums = hn::Add(sums, hn::SumsOf8(hn::LoadU(d, in + i)));
  uint64_t sum = hn::GetLane(hn::SumOfLanes(d64, sums));
  for (; i < count; ++i) sum += in[i];
  return sum;
}

void Extremes(const uint8_t* in, size_t count, uint8_t* low, uint8_t* high) {
  const D8 d;
  const size_t n = hn::Lanes(d);
  auto least = hn::Set(d, *low), most = hn::Set(d, *high);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    const auto v = hn::LoadU(d, in + i);
    least = hn::Min(least, v);
    most = hn::Max(most, v);
  }
  HWY_ALIGN uint8_t lanes[2][hn::MaxLanes(d)];
  hn::Store(least, d, lanes[0]);
  hn::Store(most, d, lanes[1]);
  uint8_t lowest = lanes[0][0], highest = lanes[1][0];
  for (size_t k = 1; k < hn::MaxLanes(d); ++k) {
    lowest = std::min(lowest, lanes[0][k]);
    highest = std::max(highest, lanes[1][k]);
  }
  for (; i < count; ++i) {
    lowest = std::min(lowest, in[i]);
    highest = std::max(highest, in[i]);
  }
  *low = lowest;
  *high = highest;
}

// 19595 r + 38470 g + 7471 b in two sums of two products, since 38470 is more than 16 bits hold.
HWY_INLINE V8 LumaOf(V8 r, V8 g, V8 b) {
  const D8 d;
  const DI16 d16;
  const DI32 d32;
  const auto red_green = hn::BitCast(d16, hn::Set(d32, 19595 + (19235 << 16)));
  const auto blue_green = hn::BitCast(d16, hn::Set(d32, 7471 + (19235 << 16)));
  const auto half = hn::Set(d32, 0x8000);
  VI16 rg[2][2], bg[2][2];
  Widen(hn::InterleaveLower(d, r, g), rg[0]);
  Widen(hn::InterleaveUpper(d, r, g), rg[1]);
  Widen(hn::InterleaveLower(d, b, g), bg[0]);
  Widen(hn::InterleaveUpper(d, b, g), bg[1]);
  VI32 sum[4];
  for (int i = 0; i < 4; ++i) {
    sum[i] = hn::ShiftRight<16>(hn::Add(
        hn::Add(MulPairs(rg[i / 2][i % 2], red_green), MulPairs(bg[i / 2][i % 2], blue_green)),
        half));
  }
  return FromInts(sum);
}

void Luma(const uint8_t* planes, size_t plane, size_t count, uint8_t* out) {
  const D8 d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::StoreU(LumaOf(hn::LoadU(d, planes + i), hn::LoadU(d, planes + plane + i),
                      hn::LoadU(d, planes + 2 * plane + i)),
               d, out + i);
  }
}

void Saturate(float factor, uint8_t* planes, size_t plane, size_t count) {
  const D8 d;
  const auto times = hn::Set(DF32(), factor);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    V8 rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = hn::LoadU(d, planes + c * plane + i);
    VF32 grey[4];
    ToFloats(LumaOf(rgb[0], rgb[1], rgb[2]), grey);
    for (int c = 0; c < 3; ++c) {
      VF32 value[4];
      VI32 mixed[4];
      ToFloats(rgb[c], value);
      for (int k = 0; k < 4; ++k) {
        mixed[k] = Truncate(hn::Add(grey[k], hn::Mul(times, hn::Sub(value[k], grey[k]))));
      }
      hn::StoreU(FromInts(mixed), d, planes + c * plane + i);
    }
  }
}

void SaturateByLine(const Line& line, uint8_t* planes, size_t plane, size_t count) {
  const D8 d;
  const DI16 d16;
  const auto whole = hn::Set(d16, line.whole), fraction = hn::Set(d16, line.fraction);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    V8 rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = hn::LoadU(d, planes + c * plane + i);
    VI16 grey[2];
    Widen(LumaOf(rgb[0], rgb[1], rgb[2]), grey);
    for (int c = 0; c < 3; ++c) {
      VI16 value[2];
      Widen(rgb[c], value);
      for (int k = 0; k < 2; ++k) {
        const auto difference = hn::Sub(value[k], grey[k]);
        value[k] = hn::Add(hn::Add(grey[k], hn::MulHigh(difference, fraction)),
                           hn::Mul(difference, whole));
      }
      hn::StoreU(NarrowTo8(value[0], value[1]), d, planes + c * plane + i);
    }
  }
}

HWY_INLINE V8 Select(hn::Mask<D8> mask, V8 yes, V8 no) { return hn::IfThenElse(mask, yes, no); }

// 255 * a / b for a <= b and b > 0, rounded down: what Pillow's division of floats gives. The
// quotient is a whole number or 1/255 away from one, much more than a reciprocal is off after one
// step of Newton's.
HWY_INLINE VI32 Of255(VF32 a, VF32 b) {
  const DF32 d;
#ifdef FW_POINT_X86
  auto inverse = hn::ApproximateReciprocal(b);
  inverse = hn::Mul(inverse, hn::Sub(hn::Set(d, 2.0f), hn::Mul(b, inverse)));
#else  // Arm's has 8 bits alone
  const auto inverse = hn::Div(hn::Set(d, 1.0f), b);
#endif
  const auto all = hn::Mul(a, hn::Set(d, 255.0f));
  return Truncate(hn::Add(hn::Mul(all, inverse), hn::Set(d, 1.0f / 1024)));
}

// Hue and saturation as Pillow has them, 8 bits each. point_kernels_test compares all colours.
HWY_INLINE void HueAndSaturation(V8 r, V8 g, V8 b, V8 high, V8* hue, V8* saturation) {
  const D8 d;
  const DF32 df;
  const auto low = hn::Min(hn::Min(r, g), b);
  const auto middle = hn::Xor(hn::Xor(hn::Xor(r, g), b), hn::Xor(high, low));
  const auto one = hn::Set(d, 1);
  const auto range = hn::Max(hn::Sub(high, low), one);
  const auto red = hn::Eq(r, high), green = hn::Eq(g, high);
  // In sixths of a turn the hue is start + q or start + 2 - q; q is what the middle channel lacks
  // of the highest one. `start` is one less than red's 0, green's 2 or blue's 4; kept one higher
  // here.
  const auto subtracted = Select(red, g, Select(green, b, r));  // Pillow's a - b: b
  const auto rises = hn::Eq(subtracted, low);
  const auto centre = Select(red, hn::Zero(d), Select(green, hn::Set(d, 2), hn::Set(d, 4)));
  const auto from = hn::Add(centre, Select(rises, hn::Zero(d), hn::Set(d, 2)));
  VF32 range_f[4], lack[4], start[4], sign[4], high_f[4];
  ToFloats(range, range_f);
  ToFloats(hn::Sub(high, middle), lack);
  ToFloats(from, start);
  ToFloats(Select(rises, hn::Set(d, 2), hn::Zero(d)), sign);
  ToFloats(hn::Max(high, one), high_f);
  VI32 hue32[4], saturation32[4];
  const auto one_f = hn::Set(df, 1.0f), six = hn::Set(df, 6.0f), all = hn::Set(df, 255.0f);
  VF32 spread[4];
  ToFloats(hn::Sub(high, low), spread);
  for (int k = 0; k < 4; ++k) {
    const auto q = hn::Div(lack[k], range_f[k]);
    const auto sixths = hn::Add(hn::Sub(start[k], one_f), hn::Mul(hn::Sub(sign[k], one_f), q));
    auto turns = hn::Div(sixths, six);
    turns = hn::Add(turns, hn::IfThenElseZero(hn::Lt(turns, hn::Zero(df)), one_f));
    hue32[k] = Truncate(hn::Mul(turns, all));
    saturation32[k] = Of255(spread[k], high_f[k]);
  }
  *hue = FromInts(hue32);
  *saturation = FromInts(saturation32);
}

void ToHsv(uint8_t* planes, size_t plane, size_t count) {
  const D8 d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto r = hn::LoadU(d, planes + i), g = hn::LoadU(d, planes + plane + i),
               b = hn::LoadU(d, planes + 2 * plane + i);
    const auto high = hn::Max(hn::Max(r, g), b);
    V8 hue, saturation;
    HueAndSaturation(r, g, b, high, &hue, &saturation);
    // Grey has hue 0 with Pillow.
    hue = hn::IfThenZeroElse(hn::Eq(high, hn::Min(hn::Min(r, g), b)), hue);
    hn::StoreU(hue, d, planes + i);
    hn::StoreU(saturation, d, planes + plane + i);
    hn::StoreU(high, d, planes + 2 * plane + i);
  }
}

void ShiftHue(uint8_t shift, uint8_t* planes, size_t plane, size_t count) {
  const D8 d;
  const DF32 df;
  const DI32 di;
  const auto turn = hn::Set(d, shift);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto r = hn::LoadU(d, planes + i), g = hn::LoadU(d, planes + plane + i),
               b = hn::LoadU(d, planes + 2 * plane + i);
    const auto high = hn::Max(hn::Max(r, g), b);
    V8 hue, saturation;
    HueAndSaturation(r, g, b, high, &hue, &saturation);
    hue = hn::Add(hue, turn);
    // The sector of the circle, 0 to 6, from the first hue of each: 6 * hue >= 255 * sector.
    auto sector = hn::Zero(d);
    for (const uint8_t first : {43, 85, 128, 170, 213, 255}) {
      sector = hn::Sub(sector, hn::VecFromMask(d, hn::Eq(hn::Max(hue, hn::Set(d, first)), hue)));
    }
    // What the third channel lacks of the highest is saturation * part / 255: `part` of 255 is how
    // far the hue is in its sector, or in every other one how far it is from its end. 6 * hue and
    // 255 * sector differ by less than 256.
    const auto times6 = [&](V8 v) HWY_ATTR {
      const auto twice = hn::Add(v, v);
      return hn::Add(twice, hn::Add(twice, twice));
    };
    const auto into = hn::Add(times6(hue), sector);  // 6 * hue - 255 * sector in 8 bits
    const auto is_odd = hn::Eq(hn::And(sector, hn::Set(d, 1)), hn::Set(d, 1));
    const auto part = Select(is_odd, into, hn::Sub(hn::Set(d, 255), into));

    VF32 value[4], amount[4], of[4];
    ToFloats(high, value);
    ToFloats(saturation, amount);
    ToFloats(part, of);
    VI32 low32[4], third32[4];
    const auto by255 = hn::Set(df, 1.0f / 255), by65025 = hn::Set(df, 1.0f / 65025),
               half = hn::Set(df, 0.5f), nearly_half = hn::Set(df, 0.4999f),
               square = hn::Set(df, 65025.0f), over = hn::Set(df, 32512.5f);
    for (int k = 0; k < 4; ++k) {
      const auto product = hn::Mul(value[k], amount[k]);
      low32[k] = Truncate(hn::Add(hn::Mul(product, by255), half));
      // The nearest whole number to whole / 65025, which is never half way between two: a first one
      // that is at most one too low, and what is left, which floats hold exactly.
      const auto whole = hn::Mul(product, of[k]);
      const auto first = Truncate(hn::Add(hn::Mul(whole, by65025), nearly_half));
      const auto left = hn::Sub(whole, hn::Mul(hn::ConvertTo(df, first), square));
      third32[k] = hn::Sub(first, hn::BitCast(di, hn::VecFromMask(df, hn::Gt(left, over))));
    }
    const auto low = hn::Sub(high, FromInts(low32)), third = hn::Sub(high, FromInts(third32));
    const auto is = [&](uint8_t which) HWY_ATTR { return hn::Eq(sector, hn::Set(d, which)); };
    const auto s1 = is(1), s2 = is(2), s3 = is(3), s4 = is(4), s5 = is(5);
    const auto red = Select(s1, third, Select(hn::Or(s2, s3), low, Select(s4, third, high)));
    const auto green = Select(hn::Or(s1, s2), high, Select(hn::Or(s4, s5), low, third));
    const auto blue = Select(s2, third, Select(hn::Or(s3, s4), high, Select(s5, third, low)));
    hn::StoreU(red, d, planes + i);
    hn::StoreU(green, d, planes + plane + i);
    hn::StoreU(blue, d, planes + 2 * plane + i);
  }
}

#endif  // HWY_SCALAR

const PointTable* PointTargetTable() {
  static const PointTable kTable = {hwy::TargetName(HWY_TARGET),
                                    kFastLookUp,
                                    LookUp,
                                    MapLine,
                                    MapBits,
                                    Sum,
                                    Extremes,
                                    Luma,
                                    Saturate,
                                    SaturateByLine,
                                    ShiftHue,
                                    ToHsv};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(PointTargetTable);

const PointTable& Points() { return *HWY_DYNAMIC_DISPATCH(PointTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
