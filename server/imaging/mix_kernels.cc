#include "server/imaging/mix_kernels.h"

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/mix_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Full = hn::CappedTag<float, 16>;
using One = hn::CappedTag<float, 1>;  // for what is left behind the last full vector

template <class D>
HWY_INLINE hn::Vec<D> Floats(D d, const uint8_t* from) {
  const hn::Rebind<int32_t, D> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint8_t, D>(), from)));
}

template <class D, class V>
HWY_INLINE void StoreBytes(D, V whole, uint8_t* to) {
  const hn::Rebind<uint8_t, D> d8;
  hn::StoreU(hn::DemoteTo(d8, whole), d8, to);
}

// Calls loop(D, k) for every k, by vectors as long as they are full.
template <class Loop>
HWY_INLINE void ForAll(size_t count, const Loop& loop) {
  const size_t n = hn::Lanes(Full());
  size_t k = 0;
  for (; k + n <= count; k += n) loop(Full(), k);
  for (; k < count; ++k) loop(One(), k);
}

void Images(const uint8_t* const* images, const float* weights, size_t images_count, size_t count,
            uint8_t* out) {
  ForAll(count, [&](auto d, size_t k) HWY_ATTR {
    auto sum = hn::Mul(hn::Set(d, weights[0]), Floats(d, images[0] + k));
    for (size_t i = 1; i < images_count; ++i)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[i]), Floats(d, images[i] + k)));
    const hn::Rebind<int32_t, decltype(d)> d32;
    StoreBytes(d, hn::ConvertTo(d32, hn::Min(sum, hn::Set(d, 255.0f))), out + k);
  });
}

void Bytes(const uint8_t* own, const uint8_t* partner, float weight, float rest, size_t count,
           uint8_t* out) {
  ForAll(count, [&](auto d, size_t k) HWY_ATTR {
    const auto sum = hn::Add(hn::Mul(hn::Set(d, weight), Floats(d, own + k)),
                             hn::Mul(hn::Set(d, rest), Floats(d, partner + k)));
    StoreBytes(d, hn::NearestInt(sum), out + k);
  });
}

void FloatsOf(const float* own, const float* partner, float weight, float rest, size_t count,
              float* out) {
  ForAll(count, [&](auto d, size_t k) HWY_ATTR {
    hn::StoreU(hn::Add(hn::Mul(hn::Set(d, weight), hn::LoadU(d, own + k)),
                       hn::Mul(hn::Set(d, rest), hn::LoadU(d, partner + k))),
               d, out + k);
  });
}

const MixTable* MixTargetTable() {
  static const MixTable kTable = {hwy::TargetName(HWY_TARGET), Images, Bytes, FloatsOf};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(MixTargetTable);

const MixTable& Mixes() { return *HWY_DYNAMIC_DISPATCH(MixTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
