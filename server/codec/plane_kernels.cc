#include "server/codec/plane_kernels.h"

#include <algorithm>
#include <cstring>

// As in resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/plane_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU8 = hn::CappedTag<uint8_t, 32>;
using DI32 = hn::CappedTag<int32_t, 16>;

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

// Where the bytes of a step come from: of one vector, by the size of a pixel; and of three vectors,
// which are 16 pixels of three bytes, by the vector written and the vector read. 0x80: from none.
struct MirrorPlaces {
  static constexpr size_t kStep = 16, kThree = 3 * kStep;
  alignas(kStep) uint8_t one[kStep + 1][kStep] = {};
  alignas(kStep) uint8_t three[3][3][kStep] = {};

  constexpr MirrorPlaces() {
    for (size_t size = 1; size <= kStep; ++size) {
      const size_t whole = kStep / size * size;
      for (size_t i = 0; i < whole; ++i)
        one[size][kStep - whole + i] =
            static_cast<uint8_t>(whole - size - i / size * size + i % size);
    }
    for (size_t i = 0; i < kThree; ++i) {
      const size_t from = kThree - 3 - i / 3 * 3 + i % 3;
      for (size_t in = 0; in < 3; ++in) {
        three[i / kStep][in][i % kStep] =
            from / kStep == in ? static_cast<uint8_t>(from % kStep) : 0x80;
      }
    }
  }
};
constexpr MirrorPlaces kMirrorPlaces;

// Reads forwards: the processor then fetches ahead what is not in its caches.
void Mirror(const uint8_t* HWY_RESTRICT pixels, size_t count, size_t size,
            uint8_t* HWY_RESTRICT out) {
  const size_t bytes = count * size;
  size_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr size_t kStep = MirrorPlaces::kStep, kThree = MirrorPlaces::kThree;
  const hn::FixedTag<uint8_t, kStep> d;
  for (; size == 3 && done + kThree <= bytes; done += kThree) {
    const uint8_t* const from = pixels + done;
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + kStep),
               c = hn::LoadU(d, from + 2 * kStep);
    for (size_t k = 0; k < 3; ++k) {
      const auto& places = kMirrorPlaces.three[k];
      const auto outer = hn::Or(hn::TableLookupBytesOr0(a, hn::Load(d, places[0])),
                                hn::TableLookupBytesOr0(c, hn::Load(d, places[2])));
      const auto inner = hn::TableLookupBytesOr0(b, hn::Load(d, places[1]));
      hn::StoreU(hn::Or(outer, inner), d, out + bytes - done - kThree + k * kStep);
    }
  }
  if (size <= kStep) {
    const auto places = hn::Load(d, kMirrorPlaces.one[size]);
    const size_t whole = kStep / size * size;
    // What lies before the whole pixels is written over by the next ones.
    for (; done + kStep <= bytes; done += whole) {
      const auto next = hn::LoadU(d, pixels + done);
      hn::StoreU(hn::TableLookupBytes(next, places), d, out + bytes - done - kStep);
    }
  }
#endif
  for (; done < bytes; done += size) std::memcpy(out + bytes - done - size, pixels + done, size);
}

using DF32 = hn::Rebind<float, DI32>;
using DU32 = hn::Rebind<uint32_t, DI32>;

HWY_INLINE hn::Vec<DF32> Affine(const uint8_t* in, hn::Vec<DF32> mean, hn::Vec<DF32> scale) {
  const hn::Rebind<uint8_t, DI32> d8;
  const auto value = hn::ConvertTo(DF32(), hn::PromoteTo(DI32(), hn::LoadU(d8, in)));
  return hn::Mul(hn::Sub(value, mean), scale);
}

template <class D, class V, typename T>
HWY_INLINE void StoreAs(V v, D d, bool stream, T* to) {
  // Highway streams whole vectors of 16 bytes or more.
  if (hn::MaxLanes(D()) * sizeof(T) >= 16 && stream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Calls convert(vector, out, stream) for whole vectors, and through a buffer for the rest.
template <typename T, class Convert>
HWY_INLINE void ConvertRow(const uint8_t* in, size_t count, float mean, float scale, bool stream,
                           T* out, Convert convert) {
  const DF32 d;
  const size_t n = hn::Lanes(d);
  const auto m = hn::Set(d, mean), s = hn::Set(d, scale);
  constexpr size_t kLine = 64;
  size_t i = 0;
  if (stream && reinterpret_cast<uintptr_t>(out) % kLine == 0) {  // whole lines only
    for (const size_t lines = count * sizeof(T) / kLine * kLine / sizeof(T); i < lines; i += n)
      convert(Affine(in + i, m, s), out + i, true);
  }
  for (; i + n <= count; i += n) convert(Affine(in + i, m, s), out + i, false);
  if (i == count) return;
  uint8_t tail[hn::MaxLanes(d)] = {};
  HWY_ALIGN T converted[hn::MaxLanes(d)];
  std::memcpy(tail, in + i, count - i);
  convert(Affine(tail, m, s), converted, false);
  std::memcpy(out + i, converted, (count - i) * sizeof(T));
}

void ToF32(const uint8_t* in, size_t count, float mean, float scale, bool stream, float* out) {
  ConvertRow(in, count, mean, scale, stream, out,
             [](hn::Vec<DF32> v, float* to, bool past) HWY_ATTR { StoreAs(v, DF32(), past, to); });
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

HWY_INLINE void Store16(hn::Vec<DU32> bits, uint16_t* to, bool stream) {
  const hn::Rebind<uint16_t, DI32> d16;
  StoreAs(hn::DemoteTo(d16, hn::BitCast(DI32(), bits)), d16, stream, to);
}

void ToF16(const uint8_t* in, size_t count, float mean, float scale, bool stream, uint16_t* out) {
  ConvertRow(in, count, mean, scale, stream, out,
             [](hn::Vec<DF32> v, uint16_t* to, bool past)
                 HWY_ATTR { Store16(ToHalfBits(v), to, past); });
}
void ToBF16(const uint8_t* in, size_t count, float mean, float scale, bool stream, uint16_t* out) {
  ConvertRow(in, count, mean, scale, stream, out,
             [](hn::Vec<DF32> v, uint16_t* to, bool past)
                 HWY_ATTR { Store16(ToBFloatBits(v), to, past); });
}

const PlaneTable* PlaneTargetTable() {
  static const PlaneTable kTable = {hwy::TargetName(HWY_TARGET),
                                    Deinterleave3,
                                    Interleave3U8,
                                    Interleave3U16,
                                    Interleave3F32,
                                    Mirror,
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

HWY_EXPORT(PlaneTargetTable);

const PlaneTable& Planes() { return *HWY_DYNAMIC_DISPATCH(PlaneTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
