// Amplitudes as decibels, as torchaudio.transforms.AmplitudeToDB makes them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/base/work_clock.h"

namespace feedwater::server {

// out[i] = factor * log10(max(in[i], 1e-10)), and not less than the largest of all minus top_db;
// top_db < 0: no such limit. out may be in.
absl::Status ToDecibels(const float* in, int64_t count, float factor, double top_db,
                        WorkClock& clock, float* out);

}  // namespace feedwater::server
