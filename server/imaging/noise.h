// Normal noise on pixels. A quantile of the normal distribution is looked up for every 16 random
// bits, so a value is as good as 16 bits can say: up to 4.3 standard deviations. The same bytes on
// every SIMD target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "server/base/work_clock.h"

namespace feedwater::server {

class NormalNoise {
 public:
  static constexpr int64_t kTableBytes = 65536 * int64_t{sizeof(int16_t)};  // of each
  // Mean and standard deviation in values of a byte.
  NormalNoise(double mean, double sigma);

  // out[i] = pixels[i] plus noise that `key` alone decides, rounded and cut to 0..255. The only
  // error is the clock's.
  absl::Status Add(const uint8_t* pixels, size_t count, const std::array<uint32_t, 2>& key,
                   WorkClock& clock, uint8_t* out) const;

 private:
  std::unique_ptr<int16_t[]> quantiles_;  // of 65,536 parts, with 6 binary places
};

// The value that a standard normal number is below with probability p. REQUIRES: 0 < p < 1.
double NormalQuantile(double p);

}  // namespace feedwater::server
