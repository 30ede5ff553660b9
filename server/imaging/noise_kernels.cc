#include "server/imaging/noise_kernels.h"

#include <algorithm>

// As in codec/resample_kernels.cc.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/imaging/noise_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU32 = hn::CappedTag<uint32_t, 16>;
using DI16 = hn::CappedTag<int16_t, 32>;
using DU8 = hn::Rebind<uint8_t, DI16>;

constexpr int kRounds = 10;
constexpr uint32_t kMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
constexpr uint32_t kWeyl[2] = {0x9E3779B9u, 0xBB67AE85u};

#if HWY_TARGET == HWY_SCALAR
void Words(const uint32_t key[2], uint32_t first, uint32_t* out) {
  for (uint32_t block = 0; block < kNoiseBlock / 4; ++block) {
    uint32_t c[4] = {first + block, 0, 0, 0}, k[2] = {key[0], key[1]};
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t a = uint64_t{kMultiplier[0]} * c[0], b = uint64_t{kMultiplier[1]} * c[2];
      const uint32_t next[4] = {
          static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
      std::copy_n(next, 4, c);
      for (int i = 0; i < 2; ++i) k[i] += kWeyl[i];
    }
    std::copy_n(c, 4, out + 4 * block);
  }
}
#else
// The upper and lower halves of v * multiplier.
template <class V>
HWY_INLINE V Multiply(V v, uint32_t multiplier, V* low) {
  const DU32 d;
  const hn::Repartition<uint64_t, DU32> d64;
  const auto m = hn::Set(d, multiplier);
  const auto even = hn::MulEven(v, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, v))), m);
  const auto upper = hn::Set(d64, 0xFFFFFFFF00000000ull);
  *low = hn::BitCast(d, hn::Or(hn::AndNot(upper, even), hn::ShiftLeft<32>(odd)));
  return hn::BitCast(d, hn::Or(hn::ShiftRight<32>(even), hn::And(odd, upper)));
}

void Words(const uint32_t key[2], uint32_t first, uint32_t* out) {
  const DU32 d;
  const size_t n = hn::Lanes(d);
  for (size_t block = 0; block < kNoiseBlock / 4; block += n) {
    auto c0 = hn::Add(hn::Iota(d, static_cast<uint32_t>(block)), hn::Set(d, first));
    auto c1 = hn::Zero(d), c2 = hn::Zero(d), c3 = hn::Zero(d);
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < kRounds; ++round) {
      hn::Vec<DU32> low_a, low_b;
      const auto high_a = Multiply(c0, kMultiplier[0], &low_a);
      const auto high_b = Multiply(c2, kMultiplier[1], &low_b);
      c0 = hn::Xor(hn::Xor(high_b, c1), hn::Set(d, k[0]));
      c1 = low_b;
      c2 = hn::Xor(hn::Xor(high_a, c3), hn::Set(d, k[1]));
      c3 = low_a;
      for (int i = 0; i < 2; ++i) k[i] += kWeyl[i];
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, out + 4 * block);
  }
}
#endif

void Add(const uint8_t* pixels, const int16_t* noise, size_t count, uint8_t* out) {
  const DI16 d;
  const DU8 d8;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= count; i += n) {
    const auto value = hn::ShiftLeft<6>(hn::PromoteTo(d, hn::LoadU(d8, pixels + i)));
    const auto sum = hn::SaturatedAdd(value, hn::LoadU(d, noise + i));
    hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<6>(hn::SaturatedAdd(sum, hn::Set(d, 32)))), d8,
               out + i);
  }
  for (; i < count; ++i) {
    const int sum = std::min((pixels[i] << 6) + noise[i] + 32, 32767) >> 6;
    out[i] = static_cast<uint8_t>(std::clamp(sum, 0, 255));
  }
}

const NoiseTable* NoiseTargetTable() {
  static const NoiseTable kTable = {hwy::TargetName(HWY_TARGET), Words, Add};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::kernels {

HWY_EXPORT(NoiseTargetTable);

const NoiseTable& Noises() { return *HWY_DYNAMIC_DISPATCH(NoiseTargetTable)(); }

}  // namespace feedwater::server::kernels
#endif
