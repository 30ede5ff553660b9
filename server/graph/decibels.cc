#include "server/graph/decibels.h"

#include <algorithm>
#include <limits>

#include "server/audio/spectrum_kernels.h"
#include "server/base/status.h"

namespace feedwater::server {

absl::Status ToDecibels(const float* in, int64_t count, float factor, double top_db,
                        WorkClock& clock, float* out) {
  constexpr int64_t kBlock = 1 << 16;
  for (int64_t i = 0; i < count; i += kBlock) {
    FW_RETURN_IF_ERROR(clock.Check());
    kernels::Spectrums().decibels(in + i, static_cast<size_t>(std::min(kBlock, count - i)), factor,
                                  1e-10f, 0, out + i);
  }
  if (top_db < 0 || count == 0) return absl::OkStatus();
  // What is no number is not the largest, and stays.
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, out[i]);
  const float least = largest - static_cast<float>(top_db);
  for (int64_t i = 0; i < count; ++i) out[i] = std::max(out[i], least);
  return absl::OkStatus();
}

}  // namespace feedwater::server
