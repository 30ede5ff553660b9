// What every way to decode has in common: the pixels of a rectangle, row by row from its top. The
// resampler pulls rows in small bands, so that decoded pixels are used while they are still in the
// core's own cache and no whole image is ever stored. The libjpeg-turbo decoder, an image in memory
// and faster decoders to come are interchangeable behind this.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace feedwater::server {

struct ImageLimits {
  int64_t max_pixels = 64'000'000;  // width * height, checked on the header
  int max_scans = 100;              // of a progressive JPEG
  int64_t max_decode_ms = 1'000;    // CPU time of one image
  int64_t max_sample_ms = 10'000;   // CPU time of one sample, all ops together
};

// What an image's pixels are when they come out: three of RGB, or the one number that is stored for
// each (README.md, "Indices").
enum class PixelValues { kRgb, kIndices };
inline int ChannelsOf(PixelValues values) { return values == PixelValues::kRgb ? 3 : 1; }

struct Size {
  int width = 0, height = 0;
  friend bool operator==(const Size&, const Size&) = default;
};
inline Size ScaledSize(Size size, int scale) {
  return {(size.width + scale - 1) / scale, (size.height + scale - 1) / scale};
}
struct Rect {
  int x = 0, y = 0, width = 0, height = 0;
  friend bool operator==(const Rect&, const Rect&) = default;
};

class RowSource {
 public:
  static constexpr int kMaxRows = 16;

  virtual ~RowSource() = default;

  // The next `count` (1..kMaxRows) rows: rows[i] points to the first pixel of the rectangle's row,
  // interleaved uint8. Valid until the next call. REQUIRES: no more rows in total than the
  // rectangle has.
  virtual absl::Status Read(int count, const uint8_t** rows) = 0;
};

// A row source that gives any rectangle of an image that it has open.
class RegionDecoder : public RowSource {
 public:
  // The image is decoded at 1 / scale of its size, rounded up (ScaledSize), and the region is of
  // that. REQUIRES: scale is 1, 2, 4 or 8; region lies within the image so scaled and is not empty.
  virtual absl::Status Start(const Rect& region, int scale) = 0;
};

}  // namespace feedwater::server
