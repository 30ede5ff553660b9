#include "server/imaging/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/base/status.h"
#include "server/imaging/warp_kernels.h"

namespace feedwater::server {
namespace {

using kernels::kWarpBits;
using kernels::kWarpBlock;
using kernels::WarpPlaces;

constexpr int kRowsBetweenLooks = 16;

kernels::WarpRow RowOf(const Warp& warp, int y) {
  const Matrix3& m = warp.inverse;
  const double row = y + 0.5;
  kernels::WarpRow made;
  made.x_step = m[0], made.x_start = m[1] * row + m[2];
  made.y_step = m[3], made.y_start = m[4] * row + m[5];
  made.w_step = m[6], made.w_start = m[7] * row + m[8];
  made.is_affine = warp.is_affine();
  if (warp.add_x != nullptr) {
    made.add_x = warp.add_x + static_cast<size_t>(y) * warp.to.width;
    made.add_y = warp.add_y + static_cast<size_t>(y) * warp.to.width;
  }
  return made;
}

bool ChangesNothing(const Warp& warp) {
  return warp.inverse == kIdentity3 && warp.add_x == nullptr && warp.from == warp.to;
}

size_t PixelsOf(Size size) {
  return static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
}

// Calls draw(places, index of the first pixel, count) for every block of every row.
template <class Draw>
absl::Status ForBlocks(const Warp& warp, WorkClock& clock, Draw draw) {
  const kernels::WarpTable& table = kernels::Warps();
  const auto width = static_cast<size_t>(warp.to.width);
  WarpPlaces places;
  for (int y = 0; y < warp.to.height; ++y) {
    if (y % kRowsBetweenLooks == 0) FW_RETURN_IF_ERROR(clock.Check());
    const kernels::WarpRow row = RowOf(warp, y);
    for (size_t x = 0; x < width; x += kWarpBlock) {
      const size_t count = std::min(kWarpBlock, width - x);
      table.places(row, x, count, &places);
      draw(places, static_cast<size_t>(y) * width + x, count);
    }
  }
  return absl::OkStatus();
}

template <size_t kBytes>
absl::Status Nearest(const Warp& warp, const std::byte* pixels, size_t bytes, const std::byte* fill,
                     WorkClock& clock, std::byte* out) {
  if (kBytes != 0) bytes = kBytes;
  const auto width = static_cast<uint32_t>(warp.from.width),
             height = static_cast<uint32_t>(warp.from.height);
  return ForBlocks(warp, clock, [&](const WarpPlaces& places, size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const auto x = static_cast<uint32_t>(places.x[i] >> kWarpBits),
                 y = static_cast<uint32_t>(places.y[i] >> kWarpBits);
      const std::byte* from =
          x < width && y < height ? pixels + (static_cast<size_t>(y) * width + x) * bytes : fill;
      std::memcpy(out + (first + i) * bytes, from, kBytes != 0 ? kBytes : bytes);
    }
  });
}

}  // namespace

Matrix3 Multiply(const Matrix3& second, const Matrix3& first) {
  Matrix3 product{};
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      for (int k = 0; k < 3; ++k)
        product[row * 3 + column] += second[row * 3 + k] * first[k * 3 + column];
    }
  }
  return product;
}

bool Invert(const Matrix3& m, Matrix3* inverse) {
  const Matrix3 adjugate = {
      m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
      m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
      m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
  const double determinant = m[0] * adjugate[0] + m[1] * adjugate[3] + m[2] * adjugate[6];
  if (!std::isfinite(determinant) || std::abs(determinant) < 1e-12) return false;
  // The last element is 1, where it can be, so that an affine one stays affine.
  const double scale = std::abs(adjugate[8]) > 1e-12 ? adjugate[8] : determinant;
  for (size_t i = 0; i < adjugate.size(); ++i) (*inverse)[i] = adjugate[i] / scale;
  return true;
}

Matrix3 InverseOf(const Affine& affine) {
  // Rotation, then shear along x and y, inverted.
  const double cos_y = std::cos(affine.shear_y), tan_x = std::tan(affine.shear_x);
  const double cos_turn = std::cos(affine.turn - affine.shear_y),
               sin_turn = std::sin(affine.turn - affine.shear_y);
  const double a = cos_turn / cos_y;
  const double b = -cos_turn * tan_x / cos_y - std::sin(affine.turn);
  const double c = sin_turn / cos_y;
  const double d = -sin_turn * tan_x / cos_y + std::cos(affine.turn);
  Matrix3 m = {
      d / affine.scale, -b / affine.scale, 0, -c / affine.scale, a / affine.scale, 0, 0, 0, 1};
  const double x = -affine.x - affine.shift_x, y = -affine.y - affine.shift_y;
  m[2] = m[0] * x + m[1] * y + affine.x;
  m[5] = m[3] * x + m[4] * y + affine.y;
  return m;
}

Matrix3 InverseRotation(double degrees, double x, double y) {
  // cos(-30 degrees) and cos(330 degrees) differ in their last bit.
  degrees = std::fmod(degrees, 360);
  if (degrees < 0) degrees += 360;
  const double angle = -degrees * (std::acos(-1.0) / 180);
  const auto rounded = [](double v) { return std::round(v * 1e15) / 1e15; };
  const double c = rounded(std::cos(angle)), s = rounded(std::sin(angle));
  return {c, s, x - c * x - s * y, -s, c, y + s * x - c * y, 0, 0, 1};
}

absl::Status WarpBilinear(const Warp& warp, const uint8_t* pixels, int channels,
                          const uint8_t* fill, WorkClock& clock, uint8_t* out) {
  if (ChangesNothing(warp)) {
    std::memcpy(out, pixels, PixelsOf(warp.to) * static_cast<size_t>(channels));
    return absl::OkStatus();
  }
  kernels::WarpSource source;
  source.pixels = pixels;
  source.width = warp.from.width;
  source.height = warp.from.height;
  std::copy_n(fill, channels, source.fill);
  const auto bilinear = kernels::Warps().bilinear[channels];
  return ForBlocks(warp, clock, [&](const WarpPlaces& places, size_t first, size_t count) {
    bilinear(source, places, count, out + first * static_cast<size_t>(channels));
  });
}

absl::Status WarpNearest(const Warp& warp, const std::byte* pixels, size_t bytes,
                         const std::byte* fill, WorkClock& clock, std::byte* out) {
  if (ChangesNothing(warp)) {
    std::memcpy(out, pixels, PixelsOf(warp.to) * bytes);
    return absl::OkStatus();
  }
  switch (bytes) {
    case 1:
      return Nearest<1>(warp, pixels, bytes, fill, clock, out);
    case 3:
      return Nearest<3>(warp, pixels, bytes, fill, clock, out);
    case 4:
      return Nearest<4>(warp, pixels, bytes, fill, clock, out);
    case 8:
      return Nearest<8>(warp, pixels, bytes, fill, clock, out);
    default:
      return Nearest<0>(warp, pixels, bytes, fill, clock, out);
  }
}

}  // namespace feedwater::server
