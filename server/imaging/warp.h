// Moves the pixels of an image by a matrix and by a field of displacements: rotation, affine,
// perspective, elastic. Every pixel of the result looks for its place in the source, as Pillow's
// Image.transform does: a place outside the image shows the fill, one inside is resampled, with the
// edge repeated.
//
// All functions are pure, allocate nothing and give the same bytes on every SIMD target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "server/base/work_clock.h"
#include "server/codec/row_source.h"  // Size

namespace feedwater::server {

// Rows of a 3x3 matrix that moves (x, y, 1). A pixel reaches from its number to the next one.
using Matrix3 = std::array<double, 9>;
inline constexpr Matrix3 kIdentity3 = {1, 0, 0, 0, 1, 0, 0, 0, 1};

Matrix3 Multiply(const Matrix3& second, const Matrix3& first);  // `first` is done first
// False when there is none, or none of use.
bool Invert(const Matrix3& matrix, Matrix3* inverse);

// What turns, shifts, scales and shears around (x, y), in radians; torchvision's, so clockwise.
struct Affine {
  double x = 0, y = 0;
  double turn = 0, shift_x = 0, shift_y = 0, scale = 1, shear_x = 0, shear_y = 0;
};
Matrix3 InverseOf(const Affine& affine);
// Turns counter-clockwise around (x, y), as Pillow's Image.rotate.
Matrix3 InverseRotation(double degrees, double x, double y);

struct Warp {
  Size from, to;
  Matrix3 inverse = kIdentity3;  // from places of the result to places of the source
  // What is added to that, in pixels, for each pixel of the result; or null.
  const float* add_x = nullptr;
  const float* add_y = nullptr;

  bool is_affine() const { return inverse[6] == 0 && inverse[7] == 0 && inverse[8] == 1; }
};

inline constexpr int kMaxWarpSide = 65535;  // of both images

// uint8 HWC of 1, 3 or 4 channels. REQUIRES: sides up to kMaxWarpSide. An error is the clock's.
absl::Status WarpBilinear(const Warp& warp, const uint8_t* pixels, int channels,
                          const uint8_t* fill, WorkClock& clock, uint8_t* out);
// Pixels of `bytes` bytes, whatever they mean; `fill` is one of them.
absl::Status WarpNearest(const Warp& warp, const std::byte* pixels, size_t bytes,
                         const std::byte* fill, WorkClock& clock, std::byte* out);

}  // namespace feedwater::server
