// Vectors of bytes as the point kernels need them: widened to 16 and 32 bits and to floats, and
// back. Included once per SIMD target.
#if defined(FEEDWATER_IMAGING_POINT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FEEDWATER_IMAGING_POINT_VECTORS_INL_H_
#undef FEEDWATER_IMAGING_POINT_VECTORS_INL_H_
#else
#define FEEDWATER_IMAGING_POINT_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef FW_POINT_OP
#undef FW_POINT_X86
#if HWY_TARGET != HWY_SCALAR

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3  // a better one is a smaller number
#define FW_POINT_X86 1
#endif
#ifdef FW_POINT_X86
using D8 = hn::CappedTag<uint8_t, 64>;
#else
using D8 = hn::CappedTag<uint8_t, 16>;  // Widen and Narrow undo each other in 16 bytes
#endif
using D16 = hn::RepartitionToWide<D8>;
using DI16 = hn::RebindToSigned<D16>;
using DI32 = hn::RepartitionToWide<DI16>;
using DF32 = hn::RebindToFloat<DI32>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
using VI16 = hn::Vec<DI16>;
using VI32 = hn::Vec<DI32>;
using VF32 = hn::Vec<DF32>;

// Four operations in the form that each CPU has them in, in blocks of 16 bytes: Widen and Narrow
// undo each other, whatever order is in between.
#ifdef FW_POINT_X86
#if HWY_TARGET <= HWY_AVX3
#define FW_POINT_OP(name) _mm512_##name
#elif HWY_TARGET <= HWY_AVX2
#define FW_POINT_OP(name) _mm256_##name
#else
#define FW_POINT_OP(name) _mm_##name
#endif

HWY_INLINE V8 NarrowTo8(VI16 low, VI16 high) {
  return V8{FW_POINT_OP(packus_epi16)(low.raw, high.raw)};
}
HWY_INLINE VI16 NarrowTo16(VI32 low, VI32 high) {
  return VI16{FW_POINT_OP(packs_epi32)(low.raw, high.raw)};
}
// a[2i] * b[2i] + a[2i+1] * b[2i+1].
HWY_INLINE VI32 MulPairs(VI16 a, VI16 b) { return VI32{FW_POINT_OP(madd_epi16)(a.raw, b.raw)}; }
// Towards zero, of what an int32 can hold.
HWY_INLINE VI32 Truncate(VF32 v) { return VI32{FW_POINT_OP(cvttps_epi32)(v.raw)}; }
#else
HWY_INLINE V8 NarrowTo8(VI16 low, VI16 high) {
  const hn::Half<D8> half;
  return hn::Combine(D8(), hn::DemoteTo(half, high), hn::DemoteTo(half, low));
}
HWY_INLINE VI16 NarrowTo16(VI32 low, VI32 high) {
  const hn::Half<DI16> half;
  return hn::Combine(DI16(), hn::DemoteTo(half, high), hn::DemoteTo(half, low));
}
HWY_INLINE VI32 MulPairs(VI16 a, VI16 b) {
  const DI32 d;
  const auto a32 = hn::BitCast(d, a), b32 = hn::BitCast(d, b);
  const auto even = [&](VI32 v) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
  return hn::Add(hn::Mul(even(a32), even(b32)),
                 hn::Mul(hn::ShiftRight<16>(a32), hn::ShiftRight<16>(b32)));
}
HWY_INLINE VI32 Truncate(VF32 v) { return hn::ConvertTo(DI32(), v); }
#endif

HWY_INLINE void Widen(V8 v, VI16 (&out)[2]) {
  const D8 d;
  const DI16 d16;
  out[0] = hn::BitCast(d16, hn::InterleaveLower(d, v, hn::Zero(d)));
  out[1] = hn::BitCast(d16, hn::InterleaveUpper(d, v, hn::Zero(d)));
}
HWY_INLINE void Widen(VI16 v, VI32 (&out)[2]) {  // of values that are not negative
  const DI16 d;
  const DI32 d32;
  out[0] = hn::BitCast(d32, hn::InterleaveLower(d, v, hn::Zero(d)));
  out[1] = hn::BitCast(d32, hn::InterleaveUpper(d, v, hn::Zero(d)));
}
HWY_INLINE void ToFloats(V8 v, VF32 (&out)[4]) {
  VI16 v16[2];
  Widen(v, v16);
  for (int i = 0; i < 2; ++i) {
    VI32 v32[2];
    Widen(v16[i], v32);
    out[2 * i] = hn::ConvertTo(DF32(), v32[0]);
    out[2 * i + 1] = hn::ConvertTo(DF32(), v32[1]);
  }
}
HWY_INLINE V8 FromInts(const VI32 (&v)[4]) {
  return NarrowTo8(NarrowTo16(v[0], v[1]), NarrowTo16(v[2], v[3]));
}

// Calls op(vector) for all values, the last ones through a buffer.
template <class F>
HWY_INLINE void Map(const uint8_t* in, size_t count, uint8_t* out, F op) {
  const D8 d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) hn::StoreU(op(hn::LoadU(d, in + i)), d, out + i);
  if (i == count) return;
  HWY_ALIGN uint8_t tail[hn::MaxLanes(d)] = {};
  std::memcpy(tail, in + i, count - i);
  hn::Store(op(hn::Load(d, tail)), d, tail);
  std::memcpy(out + i, tail, count - i);
}

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#endif  // FEEDWATER_IMAGING_POINT_VECTORS_INL_H_
