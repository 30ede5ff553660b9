#include "server/imaging/noise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/base/status.h"
#include "server/imaging/noise_kernels.h"

namespace feedwater::server {

double NormalQuantile(double p) {
  // Newton's method on the distribution, from a start that is near enough everywhere.
  const bool is_lower = p < 0.5;
  const double tail = is_lower ? p : 1 - p;
  const double t = std::sqrt(-2 * std::log(tail));
  double x = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                     (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
  for (int i = 0; i < 3; ++i) {
    const double above = 0.5 * std::erfc(x / std::sqrt(2.0));
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    x += (above - tail) / density;
  }
  return is_lower ? -x : x;
}

namespace {

// Of the 65,536 parts, made once for all: with each they are three erfc. The lower half is the
// upper one with another sign.
const std::vector<double>& UpperQuantiles() {
  static const auto* const quantiles = [] {
    auto* made = new std::vector<double>(32768);
    for (size_t i = 0; i < made->size(); ++i)
      (*made)[i] = NormalQuantile((static_cast<double>(i + made->size()) + 0.5) / 65536);
    return made;
  }();
  return *quantiles;
}

}  // namespace

NormalNoise::NormalNoise(double mean, double sigma) : quantiles_(new int16_t[65536]) {
  const std::vector<double>& upper = UpperQuantiles();
  for (size_t i = 0; i < 65536; ++i) {
    const double standard = i < 32768 ? -upper[32767 - i] : upper[i - 32768];
    const double value = mean + sigma * standard;
    quantiles_[i] = static_cast<int16_t>(std::clamp(std::nearbyint(value * 64), -32768.0, 32767.0));
  }
}

absl::Status NormalNoise::Add(const uint8_t* pixels, size_t count,
                              const std::array<uint32_t, 2>& key, WorkClock& clock,
                              uint8_t* out) const {
  const kernels::NoiseTable& table = kernels::Noises();
  alignas(64) uint32_t words[kernels::kNoiseBlock];
  alignas(64) int16_t noise[2 * kernels::kNoiseBlock];
  uint32_t block = 0;
  for (size_t i = 0; i < count; i += 2 * kernels::kNoiseBlock) {
    FW_RETURN_IF_ERROR(clock.Check());
    table.words(key.data(), block, words);
    block += kernels::kNoiseBlock / 4;
    for (size_t k = 0; k < kernels::kNoiseBlock; ++k) {
      noise[2 * k] = quantiles_[words[k] >> 16];
      noise[2 * k + 1] = quantiles_[words[k] & 0xFFFF];
    }
    table.add(pixels + i, noise, std::min(2 * kernels::kNoiseBlock, count - i), out + i);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
