// Warps against Pillow's rule, written down in float64: at most 1 away, and the same bytes on every
// SIMD target.
#include "server/imaging/warp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

using Bytes = std::vector<uint8_t>;

Matrix3 Turn(Size size, double degrees, double scale) {
  const double a = degrees * std::acos(-1.0) / 180;
  Matrix3 m = {std::cos(a) * scale,
               std::sin(a) * scale,
               0,
               -std::sin(a) * scale,
               std::cos(a) * scale,
               0,
               0,
               0,
               1};
  const double x = size.width / 2.0, y = size.height / 2.0;
  m[2] = x - m[0] * x - m[1] * y;
  m[5] = y - m[3] * x - m[4] * y;
  return m;
}

struct Place {
  double x, y;
};

Place PlaceOf(const Warp& warp, int x, int y) {
  const Matrix3& m = warp.inverse;
  const double w = m[6] * (x + 0.5) + m[7] * (y + 0.5) + m[8];
  const size_t i = static_cast<size_t>(y) * warp.to.width + x;
  return {(m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2]) / w + (warp.add_x ? warp.add_x[i] : 0),
          (m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5]) / w + (warp.add_y ? warp.add_y[i] : 0)};
}

// Pillow's bilinear before it is cut off: the fill outside, clamped neighbours inside.
double Expected(const Warp& warp, const Bytes& pixels, int channels, int x, int y, int c,
                double fill, bool* is_at_border) {
  const Place at = PlaceOf(warp, x, y);
  const auto near = [](double v, double edge) { return std::abs(v - edge) < 1e-3; };
  *is_at_border =
      near(at.x, 0) || near(at.y, 0) || near(at.x, warp.from.width) || near(at.y, warp.from.height);
  if (at.x < 0 || at.y < 0 || at.x >= warp.from.width || at.y >= warp.from.height) return fill;
  const double u = std::floor(at.x - 0.5), v = std::floor(at.y - 0.5);
  const double fx = at.x - 0.5 - u, fy = at.y - 0.5 - v;
  const auto pixel = [&](double column, double row) {
    const int i = std::clamp(static_cast<int>(column), 0, warp.from.width - 1),
              k = std::clamp(static_cast<int>(row), 0, warp.from.height - 1);
    return static_cast<double>(
        pixels[(static_cast<size_t>(k) * warp.from.width + i) * channels + c]);
  };
  return (pixel(u, v) * (1 - fx) + pixel(u + 1, v) * fx) * (1 - fy) +
         (pixel(u, v + 1) * (1 - fx) + pixel(u + 1, v + 1) * fx) * fy;
}

void Compare(const Warp& warp, int channels) {
  const Bytes pixels = Pattern(warp.from.height, warp.from.width, channels);
  const uint8_t fill[4] = {3, 99, 200, 255};
  const Bytes out = SameOnEveryTarget([&] {
    Bytes made(static_cast<size_t>(warp.to.width) * warp.to.height * channels, 77);
    EXPECT_TRUE(WarpBilinear(warp, pixels.data(), channels, fill, clock, made.data()).ok());
    return made;
  });
  double above = 0, below = 0;
  for (int y = 0; y < warp.to.height; ++y) {
    for (int x = 0; x < warp.to.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        bool is_at_border = false;
        const double expected = Expected(warp, pixels, channels, x, y, c, fill[c], &is_at_border);
        if (is_at_border) continue;
        const size_t i = (static_cast<size_t>(y) * warp.to.width + x) * channels + c;
        above = std::max(above, out[i] - expected);
        below = std::max(below, expected - out[i]);
      }
    }
  }
  EXPECT_LE(above, 0.05) << warp.from.width << "x" << warp.from.height << " of " << channels;
  EXPECT_LE(below, 1.05) << warp.from.width << "x" << warp.from.height << " of " << channels;
}

TEST(Warp, BilinearIsPillowsRule) {
  for (int channels : {1, 3, 4}) {
    for (const Size size :
         {Size{61, 47}, Size{300, 20}, Size{8, 9}, Size{3, 2}, Size{1, 1}, Size{1, 7}}) {
      for (double degrees : {0.0, 17.0, 90.0, -133.0}) {
        Warp warp;
        warp.from = warp.to = size;
        warp.inverse = Turn(size, degrees, degrees == 17.0 ? 1.7 : 0.8);
        Compare(warp, channels);
        warp.inverse[6] = 0.7e-3;
        warp.inverse[7] = -0.4e-3;
        Compare(warp, channels);
      }
    }
  }
}

TEST(Warp, TheResultMayHaveAnotherSize) {
  Warp warp;
  warp.from = {31, 17};
  warp.to = {530, 40};
  warp.inverse = {0.06, 0, 0, 0, 0.5, -1, 0, 0, 1};
  Compare(warp, 3);
}

TEST(Warp, DisplacementsAreAdded) {
  Warp warp;
  warp.from = warp.to = {270, 33};
  std::vector<float> x(270 * 33), y(270 * 33);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(std::sin(static_cast<double>(i) / 9) * 4);
    y[i] = static_cast<float>(std::cos(static_cast<double>(i) / 5) * 3);
  }
  warp.add_x = x.data();
  warp.add_y = y.data();
  Compare(warp, 3);
  warp.inverse = Turn(warp.from, 20, 1);
  Compare(warp, 1);
}

TEST(Warp, TheIdentityChangesNothing) {
  // Asked for, and come to by displacements of nothing.
  const std::vector<float> nothing(65 * 9, 0);
  for (int channels : {1, 3, 4, -1, -3, -4}) {
    Warp warp;
    warp.from = warp.to = {65, 9};
    if (channels < 0) warp.add_x = warp.add_y = nothing.data();
    channels = std::abs(channels);
    const Bytes pixels = Pattern(9, 65, channels);
    Bytes out(pixels.size());
    const uint8_t fill[4] = {};
    EXPECT_TRUE(WarpBilinear(warp, pixels.data(), channels, fill, clock, out.data()).ok());
    EXPECT_EQ(out, pixels);
    EXPECT_TRUE(WarpNearest(warp, reinterpret_cast<const std::byte*>(pixels.data()),
                            static_cast<size_t>(channels), reinterpret_cast<const std::byte*>(fill),
                            clock, reinterpret_cast<std::byte*>(out.data()))
                    .ok());
    EXPECT_EQ(out, pixels);
  }
}

TEST(Warp, NearestTakesThePixelThatThePlaceIsIn) {
  Warp warp;
  warp.from = warp.to = {40, 30};
  warp.inverse = Turn(warp.from, 33, 1.3);
  for (size_t bytes : {1u, 2u, 3u, 4u, 8u}) {
    const Bytes pixels = Pattern(30, 40, static_cast<int>(bytes));
    const Bytes fill(bytes, 7);
    const Bytes out = SameOnEveryTarget([&] {
      Bytes made(pixels.size());
      EXPECT_TRUE(WarpNearest(warp, reinterpret_cast<const std::byte*>(pixels.data()), bytes,
                              reinterpret_cast<const std::byte*>(fill.data()), clock,
                              reinterpret_cast<std::byte*>(made.data()))
                      .ok());
      return made;
    });
    for (int y = 0; y < 30; ++y) {
      for (int x = 0; x < 40; ++x) {
        const Place at = PlaceOf(warp, x, y);
        const bool is_inside = at.x >= 0 && at.y >= 0 && at.x < 40 && at.y < 30;
        const uint8_t* from =
            is_inside
                ? &pixels[(static_cast<size_t>(at.y) * 40 + static_cast<size_t>(at.x)) * bytes]
                : fill.data();
        ASSERT_TRUE(std::equal(from, from + bytes, &out[static_cast<size_t>(y * 40 + x) * bytes]));
      }
    }
  }
}

TEST(Warp, PlacesFarAwayAreOutside) {
  // Beyond what the coordinates' integers hold, and behind the horizon of a perspective.
  const Bytes pixels = Pattern(5, 5, 1);
  const uint8_t fill[4] = {42};
  for (const Matrix3& inverse :
       {Matrix3{1e12, 0, 7e5, 0, 1e12, 7e5, 0, 0, 1}, Matrix3{-1e12, 0, -7e5, 0, 1, 0, 0, 0, 1},
        Matrix3{1, 0, 1, 0, 1, 1, -5, -5, 0.001}}) {
    Warp warp;
    warp.from = warp.to = {5, 5};
    warp.inverse = inverse;
    Bytes out(25);
    EXPECT_TRUE(WarpBilinear(warp, pixels.data(), 1, fill, clock, out.data()).ok());
    EXPECT_EQ(out, Bytes(25, 42));
  }
}

TEST(Warp, AMatrixAndItsInverseAreTheIdentity) {
  Matrix3 inverse;
  for (Matrix3 matrix : {Turn({9, 9}, 25, 0.5), Matrix3{1, 0.2, 5, -0.1, 0.8, 2, 1e-3, 2e-3, 1}}) {
    ASSERT_TRUE(Invert(matrix, &inverse));
    const Matrix3 product = Multiply(matrix, inverse);
    for (int i = 0; i < 9; ++i) EXPECT_NEAR(product[i] / product[8], kIdentity3[i], 1e-9);
  }
  EXPECT_FALSE(Invert({1, 2, 0, 2, 4, 0, 0, 0, 1}, &inverse));
  EXPECT_FALSE(Invert({NAN, 2, 0, 2, 4, 0, 0, 0, 1}, &inverse));
}

}  // namespace
}  // namespace feedwater::server
