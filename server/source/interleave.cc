#include "server/source/interleave.h"

// Sizeless vectors are left out, as in the codec: NEON is there wherever SVE is.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/source/interleave.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Interleave3(const uint8_t* HWY_RESTRICT planes, size_t plane, size_t count,
                 uint8_t* HWY_RESTRICT pixels) {
  const hn::CappedTag<uint8_t, 32> d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    hn::StoreInterleaved3(hn::LoadU(d, planes + i), hn::LoadU(d, planes + plane + i),
                          hn::LoadU(d, planes + 2 * plane + i), d, pixels + 3 * i);
  }
  for (; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) pixels[3 * i + c] = planes[c * plane + i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server {

HWY_EXPORT(Interleave3);

void Interleave3(const uint8_t* planes, size_t plane, size_t count, uint8_t* pixels) {
  HWY_DYNAMIC_DISPATCH(Interleave3)(planes, plane, count, pixels);
}

}  // namespace feedwater::server
#endif
