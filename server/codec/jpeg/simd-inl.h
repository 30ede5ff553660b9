// What Highway 1.0 lacks and the JPEG kernels need: the multiply-add of neighbouring lanes and
// packing to bytes, with the instruction where there is one. Included once per SIMD target.
#if defined(FEEDWATER_CODEC_JPEG_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FEEDWATER_CODEC_JPEG_SIMD_INL_H_
#undef FEEDWATER_CODEC_JPEG_SIMD_INL_H_
#else
#define FEEDWATER_CODEC_JPEG_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// DotPairs(a, b)[i] = a[2i] * b[2i] + a[2i + 1] * b[2i + 1], in int32.
// PackUnsigned(a, b): per block of 128 bits the eight int16 of a, then those of b, clipped to
// uint8.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
HWY_INLINE hn::Vec128<int32_t> DotPairs(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<int32_t>{_mm_madd_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec128<uint8_t> PackUnsigned(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<uint8_t>{_mm_packus_epi16(a.raw, b.raw)};
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec256<int32_t> DotPairs(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<int32_t>{_mm256_madd_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec256<uint8_t> PackUnsigned(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<uint8_t>{_mm256_packus_epi16(a.raw, b.raw)};
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<int32_t> DotPairs(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<int32_t>{_mm512_madd_epi16(a.raw, b.raw)};
}
HWY_INLINE hn::Vec512<uint8_t> PackUnsigned(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<uint8_t>{_mm512_packus_epi16(a.raw, b.raw)};
}
#endif
#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
HWY_INLINE hn::Vec128<int32_t> DotPairs(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<int32_t>{vpaddq_s32(vmull_s16(vget_low_s16(a.raw), vget_low_s16(b.raw)),
                                        vmull_high_s16(a.raw, b.raw))};
}
HWY_INLINE hn::Vec128<uint8_t> PackUnsigned(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<uint8_t>{vqmovun_high_s16(vqmovun_s16(a.raw), b.raw)};
}
#else
template <class V>
HWY_INLINE auto DotPairs(V a, V b) {
  const hn::RepartitionToWide<hn::DFromV<V> > d;
  const auto low = [&d](V v) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(d, v))); };
  const auto high = [&d](V v) { return hn::ShiftRight<16>(hn::BitCast(d, v)); };
  return hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b)));
}
template <class V>
HWY_INLINE auto PackUnsigned(V a, V b) {
  const hn::Repartition<uint8_t, hn::DFromV<V> > d;
  const hn::Half<decltype(d)> half;
  return hn::Combine(d, hn::DemoteTo(half, b), hn::DemoteTo(half, a));
}
#endif

// sum + DotPairs(a, b). In assembler because Highway asks for AVX512-VNNI at run time before it
// takes this target, but does not tell the compiler.
#if HWY_TARGET == HWY_AVX3_DL
HWY_INLINE hn::Vec512<int32_t> AddDotPairs(hn::Vec512<int32_t> sum, hn::Vec512<int16_t> a,
                                           hn::Vec512<int16_t> b) {
  __m512i total = sum.raw;
  __asm__("vpdpwssd %2, %1, %0" : "+v"(total) : "v"(a.raw), "v"(b.raw));
  return hn::Vec512<int32_t>{total};
}
#else
template <class V32, class V16>
HWY_INLINE V32 AddDotPairs(V32 sum, V16 a, V16 b) {
  return hn::Add(sum, DotPairs(a, b));
}
#endif

// The pair (even, odd) in all lanes.
template <class D16>
HWY_INLINE hn::Vec<D16> SetPairs(D16 d, int even, int odd) {
  const hn::RepartitionToWide<D16> d32;
  return hn::BitCast(d, hn::Set(d32, static_cast<int32_t>(static_cast<uint32_t>(even & 0xFFFF) |
                                                          (static_cast<uint32_t>(odd) << 16))));
}

// One vector of pieces of kLanes lanes, the first from `from[0]`, each at the same offset.
template <size_t kLanes, class D, typename T>
HWY_INLINE hn::Vec<D> LoadPieces(D d, const T* const* from, size_t offset) {
  if constexpr (hn::MaxLanes(D()) == kLanes) {
    return hn::LoadU(d, from[0] + offset);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadPieces<kLanes>(half, from + hn::MaxLanes(half) / kLanes, offset),
                       LoadPieces<kLanes>(half, from, offset));
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#endif  // FEEDWATER_CODEC_JPEG_SIMD_INL_H_
