// EXIF orientation as a transposition and two mirrorings: the upright image is the stored one,
// transposed if `transpose`, then mirrored along x if `mirror_x` and along y if `mirror_y`.
#pragma once

#include "server/codec/image.h"

namespace feedwater::server {

struct Orientation {
  bool transpose = false, mirror_x = false, mirror_y = false;
};

constexpr Orientation OrientationOf(int exif) {
  switch (exif) {
    case 2:
      return {false, true, false};
    case 3:
      return {false, true, true};
    case 4:
      return {false, false, true};
    case 5:
      return {true, false, false};
    case 6:
      return {true, true, false};
    case 7:
      return {true, true, true};
    case 8:
      return {true, false, true};
    default:
      return {};
  }
}

constexpr Size Transposed(Size size) { return {size.height, size.width}; }
constexpr Rect Transposed(Rect rect) { return {rect.y, rect.x, rect.height, rect.width}; }

}  // namespace feedwater::server
