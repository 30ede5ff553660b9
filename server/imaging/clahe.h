// Contrast of each part of an image by its own histogram (contrast limited adaptive histogram
// equalisation), byte for byte as OpenCV's CLAHE. Pure functions; all targets give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "server/base/work_clock.h"
#include "server/codec/row_source.h"  // Size

namespace feedwater::server {

inline constexpr int kMaxClaheTiles = 64;  // along an axis

// Of grey images, or of the lightness of RGB images in OpenCV's Lab of 8 bits. `tiles`: how many
// parts there are along x and y. A bin of a histogram keeps at most `clip_limit` times the mean of
// all bins; the rest is spread over all. `out` is not `pixels`. An error is the clock's.
absl::Status Clahe(const uint8_t* pixels, Size size, int channels, double clip_limit, Size tiles,
                   std::byte* scratch, WorkClock& clock, uint8_t* out);
size_t ClaheScratch(Size size, Size tiles);  // bytes

}  // namespace feedwater::server
