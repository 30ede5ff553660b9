#include "server/base/philox.h"

#include <cmath>

namespace feedwater::server {
namespace {

// Constants of the paper: two odd multipliers, and the Weyl increments of the key schedule (golden
// ratio, sqrt(3) - 1).
constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

constexpr double kTwoPi = 6.283185307179586476925286766559;

}  // namespace

PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

PhiloxKey EpochKey(uint64_t seed, uint64_t epoch, uint32_t source) {
  const PhiloxCounter counter = {static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
                                 0x66656564u, source};
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const PhiloxCounter out = Philox4x32(counter, key);
  return {out[0], out[1]};
}

uint32_t Draws::Next() {
  if (used_ % 4 == 0) {
    block_ = Philox4x32({static_cast<uint32_t>(record_), static_cast<uint32_t>(record_ >> 32),
                         instance_, used_ / 4},
                        key_);
  }
  return block_[used_++ % 4];
}

double Draws::Uniform() { return Next() * 0x1p-32; }

double Draws::Uniform(double low, double high) { return low + Uniform() * (high - low); }

int64_t Draws::Below(int64_t n) {
  const uint64_t low = Next();
  const uint64_t draw = uint64_t{Next()} << 32 | low;
  return static_cast<int64_t>(static_cast<unsigned __int128>(draw) * static_cast<uint64_t>(n) >>
                              64);
}

double Draws::Normal() {
  const double radius_draw = (Next() + 1.0) * 0x1p-32;  // (0, 1], so that the logarithm is finite
  const double angle = Uniform() * kTwoPi;
  return std::sqrt(-2.0 * std::log(radius_draw)) * std::cos(angle);
}

std::array<uint64_t, 2> SeedOf(Draws draws) {
  std::array<uint64_t, 2> seed;
  for (uint64_t& half : seed) {
    half = draws.Next();
    half |= static_cast<uint64_t>(draws.Next()) << 32;
  }
  return seed;
}

}  // namespace feedwater::server
