// All randomness of Feedwater: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011), a pure function of a counter and a key. No generator state lives
// anywhere, so a sample's draws depend on nothing but seed, epoch, record and op. Thread safety:
// everything here is a value.
#pragma once

#include <array>
#include <cstdint>

namespace feedwater::server {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key);  // 10 rounds

// The key of one epoch: words 0 and 1 of Philox(counter = {epoch low, epoch high, 0x66656564,
// source}, key = {seed low, seed high}). The sources of a mix count from 1; 0 is no mix's.
PhiloxKey EpochKey(uint64_t seed, uint64_t epoch, uint32_t source = 0);

// Op instances as they stand in the counter. Sample ops are numbered by their place in `graph`,
// batch ops by their place in `batch.graph` plus kBatchInstance; the sampler's own uses come last.
inline constexpr uint32_t kBatchInstance = 0x80000000u;
inline constexpr uint32_t kGivenInstance = 0xfffffe00u;  // records that users' programs give
inline constexpr uint32_t kShuffleInstance = 0xffffff00u;

// The draws of one op instance for one record: block n is Philox({record low, record high,
// instance, n}, key), and its four words are handed out in order. Copying copies the position.
class Draws {
 public:
  Draws(PhiloxKey key, uint64_t record, uint32_t instance)
      : key_(key), record_(record), instance_(instance) {}

  uint32_t Next();                          // uniform over all 32-bit words
  double Uniform();                         // [0, 1): Next() * 2^-32
  double Uniform(double low, double high);  // low + Uniform() * (high - low)
  int64_t Below(
      int64_t n);   // [0, n), n >= 1: high half of a 64-bit draw times n (bias < n * 2^-64)
  double Normal();  // Box-Muller on two draws
  bool Bernoulli(double p) { return Uniform() < p; }

 private:
  PhiloxKey key_;
  uint64_t record_;
  uint32_t instance_;
  uint32_t used_ = 0;  // words handed out
  PhiloxCounter block_{};
};

// For generators of users' own code: four words, the first one lowest.
std::array<uint64_t, 2> SeedOf(Draws draws);

}  // namespace feedwater::server
