// A map of an image's instances: a pixel holds the number of the instance that covers it, 0 where
// none does; of several the one that came last. Made of outlines and of runs of pixels, with the
// pixels that pycocotools gives them, and written as a gray PNG of 8 bits.
//
// Reused for one image after the other by one thread. All sizes and coordinates may be hostile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/base/status.h"

namespace feedwater::server {

class InstanceMap {
 public:
  static constexpr int64_t kMaxSide = 1 << 20, kMaxPixels = 64'000'000;
  static constexpr int kMaxInstances = 255;
  static constexpr int64_t kMaxCoordinate = 1 << 21;  // of an outline, to either side
  // Length of the outlines of an image and of one polygon, in fifths of a pixel: the time that they
  // take to draw. Of memory a polygon takes at most kMaxOutlineBytes.
  static constexpr int64_t kMaxOutlines = 1 << 27, kMaxOutline = 1 << 22;
  static constexpr int64_t kMaxOutlineBytes = 3 * 4 * kMaxOutline / 5;
  // Pixels that an image's instances cover, each for itself: time, too.
  static constexpr int64_t kMaxCovered = int64_t{1} << 31;
  static constexpr int64_t kMaxPngBytes = 16 << 20;  // a hundred times that of a large photo's map

  // Memory that an image takes beside its outlines, its PNG and copies of that among it. REQUIRES:
  // CheckSize is OK.
  static int64_t Bytes(int64_t width, int64_t height) {
    constexpr int64_t kCopies = 5, kLeast = 4096;
    const int64_t map = width * height + height;
    return 2 * map + kCopies * std::min(2 * map + kLeast, kMaxPngBytes);
  }
  // Before anything is allocated. InvalidArgument: no such image can be.
  static absl::Status CheckSize(int64_t width, int64_t height);

  // An empty map. REQUIRES: CheckSize is OK.
  void Begin(int64_t width, int64_t height);
  int64_t width() const { return width_; }
  int64_t height() const { return height_; }

  // Covers what is within the polygon, whose points are x and y in turn. REQUIRES: label > 0.
  // InvalidArgument: an odd number of them, one that is not finite or far away, an outline that is
  // too long; the map is of no use then.
  absl::Status CoverPolygon(absl::Span<const double> points, uint8_t label);
  // The lengths of runs of pixels down the columns, from the first one on; every second run is
  // covered, not the first one. InvalidArgument: they are not as many as the map's pixels.
  absl::Status CoverRuns(absl::Span<const int64_t> runs, uint8_t label);

  // The map as a file: the same bytes for the same map. InvalidArgument: it is over kMaxPngBytes.
  absl::StatusOr<std::string> Png();

 private:
  void Cover(int64_t begin, int64_t end, uint8_t label);
  absl::Status CheckCovered() const;

  int64_t width_ = 0, height_ = 0;
  int64_t outlines_ = 0, covered_ = 0;  // so far
  std::vector<uint8_t> pixels_;         // column by column
  std::vector<uint8_t> rows_;           // the same as the PNG has them
  std::vector<uint32_t> borders_;  // of a polygon: pixels where inside and outside change places
};

}  // namespace feedwater::server
