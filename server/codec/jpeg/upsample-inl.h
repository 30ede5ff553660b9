// Fancy upsampling as libjpeg-turbo does it: a pixel is three quarters of its own sample and one
// quarter of the next one on its side, in one or both directions, rounded alternately.
#if defined(FEEDWATER_CODEC_JPEG_UPSAMPLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FEEDWATER_CODEC_JPEG_UPSAMPLE_INL_H_
#undef FEEDWATER_CODEC_JPEG_UPSAMPLE_INL_H_
#else
#define FEEDWATER_CODEC_JPEG_UPSAMPLE_INL_H_
#endif

#include "server/codec/jpeg/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using DSum = hn::CappedTag<uint16_t, 32>;
using VSum = hn::Vec<DSum>;
constexpr size_t kSumLanes = hn::MaxLanes(DSum());

HWY_INLINE VSum LoadSamples(const uint8_t* in) {
  const hn::Rebind<uint8_t, DSum> d8;
  return hn::PromoteTo(DSum(), hn::LoadU(d8, in));
}
HWY_INLINE VSum Triple(VSum v) { return hn::Add(v, hn::Add(v, v)); }

// Doubles the width. vertical(i) gives the vertical sums of samples i .. i + kSumLanes - 1 (i is an
// index into the input rows). Sums are kept on the stack for a stretch of the row, with the missing
// neighbours at the row's ends put in.
template <int kEvenBias, int kOddBias, int kDown, class Vertical>
HWY_INLINE void DoubleWidth(Vertical vertical, int first, int width, int x0, int count,
                            uint8_t* out) {
  constexpr int kStretch = 512;
  const DSum d;
  const hn::Repartition<uint8_t, DSum> d8;
  HWY_ALIGN uint16_t buffer[kSumLanes + kStretch + 2 * kSumLanes];
  uint16_t* sums = buffer + kSumLanes;
  const auto even_bias = hn::Set(d, kEvenBias), odd_bias = hn::Set(d, kOddBias);
  const int end = (x0 + count + 1) >> 1;  // samples
  for (int from = x0 >> 1; from < end; from += kStretch) {
    const int samples = end - from < kStretch ? end - from : kStretch;
    // sums[i] belongs to sample from + i, for i = -1 .. samples. The one before is not there where
    // the first pixel wanted is an odd one.
    for (int i = 0; i <= samples; i += kSumLanes) {
      hn::StoreU(vertical(from + i - first), d, sums + i);
    }
    if (from > first) {
      HWY_ALIGN uint16_t before[kSumLanes];
      hn::Store(vertical(from - 1 - first), d, before);
      sums[-1] = before[0];
    } else {
      sums[-1] = sums[0];
    }
    if (from + samples >= width) sums[width - from] = sums[width - from - 1];
    uint8_t* to = out + (2 * from - x0);
    int i = 0;
    if (2 * from < x0) {  // half a sample
      *out = static_cast<uint8_t>((3 * sums[0] + sums[1] + kOddBias) >> kDown);
      i = 1;
    }
    for (; i < samples; i += kSumLanes) {
      const auto three = Triple(hn::LoadU(d, sums + i));
      const auto even =
          hn::ShiftRight<kDown>(hn::Add(hn::Add(three, hn::LoadU(d, sums + i - 1)), even_bias));
      const auto odd =
          hn::ShiftRight<kDown>(hn::Add(hn::Add(three, hn::LoadU(d, sums + i + 1)), odd_bias));
      hn::StoreU(hn::BitCast(d8, hn::Or(even, hn::ShiftLeft<8>(odd))), d8, to + 2 * i);
    }
  }
}

inline void UpsampleH2V1(const uint8_t* in, int first, int width, int x0, int count, uint8_t* out) {
  DoubleWidth<1, 2, 2>([in](int i) HWY_ATTR { return LoadSamples(in + i); }, first, width, x0,
                       count, out);
}

inline void UpsampleH2V2(const uint8_t* near, const uint8_t* far, int first, int width, int x0,
                         int count, uint8_t* out) {
  DoubleWidth<8, 7, 4>(
      [near, far](int i)
          HWY_ATTR { return hn::Add(Triple(LoadSamples(near + i)), LoadSamples(far + i)); },
      first, width, x0, count, out);
}

inline void UpsampleH1V2(const uint8_t* near, const uint8_t* far, bool below, size_t count,
                         uint8_t* out) {
  const DSum d;
  const hn::RebindToSigned<DSum> d16;
  const hn::Rebind<uint8_t, DSum> d8;
  const auto bias = hn::Set(d, below ? 2 : 1);
  for (size_t i = 0; i < count; i += kSumLanes) {
    const auto sum = hn::Add(Triple(LoadSamples(near + i)), hn::Add(LoadSamples(far + i), bias));
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(d16, hn::ShiftRight<2>(sum))), d8, out + i);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#endif  // FEEDWATER_CODEC_JPEG_UPSAMPLE_INL_H_
