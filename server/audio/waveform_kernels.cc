#include "server/audio/waveform_kernels.h"

#include <algorithm>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/audio/waveform_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kPartialSums = 8;
using D = hn::CappedTag<float, kPartialSums>;

float WeightedSum(const float* weights, const float* samples, int count) {
  const D d;
  constexpr size_t kLanes = hn::MaxLanes(D()), kVectors = kPartialSums / kLanes;
  hn::Vec<D> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (size_t i = 0; i < static_cast<size_t>(count); i += kPartialSums) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = i + v * kLanes;
      sums[v] = hn::Add(sums[v], hn::Mul(hn::LoadU(d, weights + at), hn::LoadU(d, samples + at)));
    }
  }
  HWY_ALIGN float s[kPartialSums];
  for (size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, s + v * kLanes);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

void MeanOfChannels(const float* frames, int channels, size_t count, float* out) {
  if (channels == 1) {
    std::copy_n(frames, count, out);
    return;
  }
  const float share = 1.0f / static_cast<float>(channels);
  for (size_t i = 0; i < count; ++i, frames += channels) {
    float sum = frames[0];
    for (int c = 1; c < channels; ++c) sum += frames[c];
    out[i] = sum * share;
  }
}

void OneChannel(const float* frames, int channels, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = frames[i * static_cast<size_t>(channels)];
}

// x - x is 0, or no number.
bool AllFinite(const float* numbers, size_t count) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, numbers + i);
    sum = hn::Add(sum, hn::Sub(x, x));
  }
  float rest = 0;
  for (; i < count; ++i) rest += numbers[i] - numbers[i];
  return rest == 0 && hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

const WaveformTable* WaveformTargetTable() {
  static const WaveformTable kTable = {hwy::TargetName(HWY_TARGET), WeightedSum, MeanOfChannels,
                                       OneChannel, AllFinite};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(WaveformTargetTable);

const WaveformTable& Waveforms() { return *HWY_DYNAMIC_DISPATCH(WaveformTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
