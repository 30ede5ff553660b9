// Geometry::fast_scale: the pixels are those of libjpeg-turbo's decode of the whole image at 1/2,
// 1/4 or 1/8, resampled the rest of the way as Pillow does it, whichever way the file lies; and
// they are near the exact ones. That all levels give the same bytes is jpeg_levels_test's and
// jpeg_region_test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codec/image.h"
#include "server/codec/orientation.h"
#include "tests/codec/pillow_resize.h"
#include "tests/codec/test_images.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server::testing {
namespace {

using Bytes = std::vector<uint8_t>;

// The file with an EXIF segment that says so.
std::string WithOrientation(const std::string& jpeg, int orientation) {
  std::string exif("Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 25);
  exif += static_cast<char>(orientation);
  exif.append(6, '\0');
  const size_t length = exif.size() + 2;
  std::string segment = "\xff\xe1";
  segment += static_cast<char>(length >> 8);
  segment += static_cast<char>(length);
  return jpeg.substr(0, 2) + segment + exif + jpeg.substr(2);
}

Bytes Decode(const std::string& file, const Geometry& geometry, bool orient = false) {
  static ImageWorkspace workspace;
  Bytes out(static_cast<size_t>(geometry.window.width) * geometry.window.height * 3);
  const absl::Status status =
      DecodeInto(AsBytes(file), orient, ImageLimits(), geometry, PixelFormat(),
                 reinterpret_cast<std::byte*>(out.data()), workspace);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

Geometry Resized(const Rect& crop, Size to) {
  Geometry geometry;
  geometry.crop = crop;
  geometry.scaled = to;
  geometry.window = {0, 0, to.width, to.height};
  geometry.fast_scale = true;
  return geometry;
}

// What the README says: the largest of 8, 4, 2 by which the crop can be divided.
int ScaleFor(const Rect& crop, Size to) {
  int scale = 1;
  while (scale < 8 && crop.width >= 2 * scale * to.width && crop.height >= 2 * scale * to.height)
    scale *= 2;
  return scale;
}

// The part of a whole decode that holds the crop, resampled.
Bytes Reference(const Pixels& whole, const Rect& crop, Size to, int scale, bool cubic) {
  const int x0 = crop.x / scale, x1 = (crop.x + crop.width + scale - 1) / scale;
  const int y0 = crop.y / scale, y1 = (crop.y + crop.height + scale - 1) / scale;
  Bytes part;
  for (int y = y0; y < y1; ++y)
    part.insert(part.end(), whole.at(x0, y), whole.at(x0, y) + 3 * (x1 - x0));
  const double s = scale;
  return PillowResize(part, {x1 - x0, y1 - y0}, {crop.x / s - x0, crop.width / s},
                      {crop.y / s - y0, crop.height / s}, to, cubic);
}

Pixels Turned(const Pixels& image) {
  Pixels turned{Transposed(image.size), 3, {}};
  for (int y = 0; y < turned.size.height; ++y) {
    for (int x = 0; x < turned.size.width; ++x)
      turned.bytes.insert(turned.bytes.end(), image.at(y, x), image.at(y, x) + 3);
  }
  return turned;
}

int Largest(const Bytes& a, const Bytes& b) {
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

JpegOptions RandomOptions(std::mt19937& random) {
  JpegOptions options;
  const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}};
  const auto& sampling = samplings[random() % 5];
  options.luma_h = sampling[0];
  options.luma_v = sampling[1];
  options.quality = 20 + static_cast<int>(random() % 80);
  options.progressive = random() % 6 == 0;
  return options;
}

TEST(FastScale, IsTheScaledDecodeResampledTheRestOfTheWay) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](int n) {
    return 1 + static_cast<int>(random() % static_cast<unsigned>(n));
  };
  int of_scale[9] = {};
  size_t two_steps = 0, bytes = 0;
  for (int i = 0; i < 150; ++i) {
    const Size size{30 + upto(200), 30 + upto(200)};
    const int exif = upto(8);
    const std::string file =
        WithOrientation(EncodeJpeg(NoisyImage(size, 3, random), RandomOptions(random)), exif);
    const Orientation orientation = OrientationOf(exif);
    const Size upright = orientation.transpose ? Transposed(size) : size;
    const Rect crop = RandomRect(upright, random);
    const int shrink = upto(13);
    const Size to{std::max(1, crop.width / shrink - static_cast<int>(random() % 2)),
                  std::max(1, crop.height / shrink - static_cast<int>(random() % 3))};
    const int scale = ScaleFor(crop, to);
    ++of_scale[scale];
    Geometry geometry = Resized(crop, to);
    const bool cubic = random() % 3 == 0;
    if (cubic) geometry.interpolation = Interpolation::kBicubic;
    geometry.window = RandomRect(to, random);
    geometry.flip_horizontal = random() % 2 == 0;
    geometry.flip_vertical = random() % 2 == 0;
    const Bytes got = Decode(file, geometry, true);

    // Scaled as the file lies, then transposed; resampled, then mirrored.
    Rect stored = crop;
    if (orientation.mirror_x) stored.x = upright.width - crop.x - crop.width;
    if (orientation.mirror_y) stored.y = upright.height - crop.y - crop.height;
    Pixels whole;
    long warnings = 0;
    PlainDecoder plain;
    ASSERT_TRUE(plain.Decode(file, &whole, &warnings, scale));
    if (orientation.transpose) whole = Turned(whole);
    const Bytes resized = Reference(whole, stored, to, scale, cubic);
    Bytes expected;
    for (int y = 0; y < geometry.window.height; ++y) {
      for (int x = 0; x < geometry.window.width; ++x) {
        int at_x =
            geometry.window.x + (geometry.flip_horizontal ? geometry.window.width - 1 - x : x);
        int at_y =
            geometry.window.y + (geometry.flip_vertical ? geometry.window.height - 1 - y : y);
        if (orientation.mirror_x) at_x = to.width - 1 - at_x;
        if (orientation.mirror_y) at_y = to.height - 1 - at_y;
        const uint8_t* pixel = &resized[3 * (at_y * to.width + at_x)];
        expected.insert(expected.end(), pixel, pixel + 3);
      }
    }
    // One step, and hardly ever two: where several values between the passes are one step off.
    for (size_t k = 0; k < got.size(); ++k) two_steps += std::abs(got[k] - expected[k]) > 1;
    bytes += got.size();
    ASSERT_LE(Largest(got, expected), 2)
        << "image " << i << " " << size.width << "x" << size.height << " EXIF " << exif << " crop "
        << crop.width << "x" << crop.height << "+" << crop.x << "+" << crop.y << " to " << to.width
        << "x" << to.height << " at 1/" << scale << " cubic " << cubic;
  }
  EXPECT_LE(two_steps, bytes / 10'000);
  for (const int scale : {1, 2, 4, 8}) EXPECT_GT(of_scale[scale], 0) << scale;
}

TEST(FastScale, BeginsAtTwiceTheTargetInBothDirections) {
  std::mt19937 random(1);
  const std::string file = EncodeJpeg(NoisyImage({200, 200}, 3, random), JpegOptions());
  const auto exact = [&](Geometry geometry) {
    geometry.fast_scale = false;
    return Decode(file, geometry);
  };
  for (const int scale : {2, 4, 8}) {
    const Geometry enough = Resized({3, 5, 20 * scale, 22 * scale}, {20, 22});
    EXPECT_NE(Decode(file, enough), exact(enough)) << scale;
    const Geometry less = Resized({3, 5, 20 * scale - 1, 22 * scale}, {20, 22});
    Pixels whole;
    long warnings = 0;
    PlainDecoder plain;
    ASSERT_TRUE(plain.Decode(file, &whole, &warnings, scale / 2));
    EXPECT_LE(
        Largest(Decode(file, less), Reference(whole, less.crop, less.scaled, scale / 2, false)), 1)
        << scale;
    if (scale == 2) {
      EXPECT_EQ(Decode(file, less), exact(less));
    }
  }
}

TEST(FastScale, ChangesNothingWhereItDoesNotApply) {
  std::mt19937 random(2);
  const std::string file = EncodeJpeg(NoisyImage({160, 120}, 3, random), JpegOptions());
  std::vector<Geometry> geometries(4, Resized({8, 8, 128, 96}, {30, 20}));
  geometries[0].interpolation = Interpolation::kNearest;
  geometries[1].interpolation = Interpolation::kOpenCvLinear;
  geometries[2] = CropOnly({8, 8, 128, 96});
  geometries[3] = Resized({8, 8, 20, 20}, {60, 60});
  for (size_t i = 0; i < geometries.size(); ++i) {
    Geometry geometry = geometries[i];
    geometry.fast_scale = true;
    const Bytes fast = Decode(file, geometry);
    geometry.fast_scale = false;
    EXPECT_EQ(fast, Decode(file, geometry)) << i;
  }
}

// Discs with hard edges over gradients, and a little grain.
Pixels Discs(Size size, std::mt19937& random) {
  Pixels image{size, 3, Bytes(static_cast<size_t>(size.width) * size.height * 3)};
  struct Disc {
    int x, y, radius, colour[3];
  };
  std::vector<Disc> discs(12);
  for (Disc& disc : discs) {
    disc.x = static_cast<int>(random() % static_cast<unsigned>(size.width));
    disc.y = static_cast<int>(random() % static_cast<unsigned>(size.height));
    disc.radius = 5 + static_cast<int>(random() % 60);
    for (int& c : disc.colour) c = 10 + static_cast<int>(random() % 236);
  }
  for (int y = 0, i = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      for (int c = 0; c < 3; ++c, ++i) {
        int value = 40 + (x + 2 * y) % 512 / 4 + 20 * c;
        for (const Disc& disc : discs) {
          const int dx = x - disc.x, dy = y - disc.y;
          if (dx * dx + dy * dy < disc.radius * disc.radius) value = disc.colour[c];
        }
        image.bytes[i] = static_cast<uint8_t>(value - 6 + static_cast<int>(random() % 13));
      }
    }
  }
  return image;
}

// The figures of README.md are of photos; this keeps them from growing unseen.
TEST(FastScale, IsNearTheExactPixels) {
  std::mt19937 random(3);
  double sum = 0, count = 0;
  int largest = 0;
  constexpr Size kSize{400, 320};
  for (int i = 0; i < 40; ++i) {
    JpegOptions options = RandomOptions(random);
    options.quality = 85;
    const std::string file = EncodeJpeg(Discs(kSize, random), options);
    Geometry geometry = Resized({5, 3, 390, 310}, {20 + 9 * (i % 20), 20 + 7 * (i % 18)});
    const Bytes fast = Decode(file, geometry);
    geometry.fast_scale = false;
    const Bytes exact = Decode(file, geometry);
    for (size_t k = 0; k < fast.size(); ++k) sum += std::abs(fast[k] - exact[k]);
    count += static_cast<double>(fast.size());
    largest = std::max(largest, Largest(fast, exact));
  }
  std::printf("%.2f in the mean, %d at most\n", sum / count, largest);
  EXPECT_GT(sum / count, 0.2);
  EXPECT_LT(sum / count, 2.0);
  EXPECT_LT(largest, 128);
}

}  // namespace
}  // namespace feedwater::server::testing
