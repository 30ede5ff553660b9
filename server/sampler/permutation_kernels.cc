#include "server/sampler/permutation_kernels.h"

#include <algorithm>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/sampler/permutation_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A 32-bit word of Philox in each 64-bit lane, so that a product fits.
using D = hn::CappedTag<uint64_t, 8>;
using V = hn::Vec<D>;

constexpr size_t kVectors = 4;  // at a time: a product has to be waited for
constexpr int kPhiloxRounds = 10;

// The lower 32 bits of each lane, times a number.
HWY_INLINE V Product(V lanes, uint32_t factor) {
  const D d;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, hn::GetLane(lanes) * factor);
#else
  const hn::Repartition<uint32_t, D> d32;
  return hn::MulEven(hn::BitCast(d32, lanes), hn::Set(d32, factor));
#endif
}

// Philox4x32-10 as in base/philox.cc, of the counters {x0, word1, word2, 0}; word 0 of the result
// replaces x0.
HWY_INLINE void Philox(V (&x0)[kVectors], uint32_t word1, uint32_t word2, PhiloxKey key) {
  const D d;
  const V low = hn::Set(d, 0xffffffffu);
  V x1[kVectors], x2[kVectors], x3[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    x1[i] = hn::Set(d, word1);
    x2[i] = hn::Set(d, word2);
    x3[i] = hn::Zero(d);
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const V key0 = hn::Set(d, key[0]), key1 = hn::Set(d, key[1]);
    for (size_t i = 0; i < kVectors; ++i) {
      const V product0 = Product(x0[i], 0xD2511F53u);
      const V product2 = Product(x2[i], 0xCD9E8D57u);
      x0[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product2), x1[i]), key0);
      x1[i] = hn::And(product2, low);
      x2[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), x3[i]), key1);
      x3[i] = hn::And(product0, low);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

void RunFeistel(const FeistelNetwork& network, uint64_t* values, size_t count) {
  const D d;
  const size_t n = hn::Lanes(d);
  HWY_ALIGN uint64_t block[kVectors * HWY_MAX_BYTES / sizeof(uint64_t)];
  const V low_mask = hn::Set(d, network.low_mask), high_mask = hn::Set(d, network.high_mask);
  for (size_t at = 0; at < count; at += kVectors * n) {
    const size_t here = std::min(count - at, kVectors * n);
    std::copy_n(values + at, here, block);
    std::fill(block + here, block + kVectors * n, 0);
    V low[kVectors], high[kVectors], word[kVectors];
    for (size_t i = 0; i < kVectors; ++i) {
      const V value = hn::Load(d, block + i * n);
      low[i] = hn::And(value, low_mask);
      high[i] = hn::ShiftRightSame(value, network.low_bits);
    }
    for (uint32_t round = 0; round < kFeistelRounds; round += 2) {
      for (size_t i = 0; i < kVectors; ++i) word[i] = low[i];
      Philox(word, round, network.instance, network.key);
      for (size_t i = 0; i < kVectors; ++i) high[i] = hn::Xor(high[i], hn::And(word[i], high_mask));
      for (size_t i = 0; i < kVectors; ++i) word[i] = high[i];
      Philox(word, round + 1, network.instance, network.key);
      for (size_t i = 0; i < kVectors; ++i) low[i] = hn::Xor(low[i], hn::And(word[i], low_mask));
    }
    for (size_t i = 0; i < kVectors; ++i)
      hn::Store(hn::Or(hn::ShiftLeftSame(high[i], network.low_bits), low[i]), d, block + i * n);
    std::copy_n(block, here, values + at);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {
HWY_EXPORT(RunFeistel);

void RunFeistel(const FeistelNetwork& network, uint64_t* values, size_t count) {
  HWY_DYNAMIC_DISPATCH(RunFeistel)(network, values, count);
}

}  // namespace feedwater::server::kernels
#endif
