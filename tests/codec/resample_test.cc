// Goal: resampled pixels are Pillow's within one step, whatever part, mirror or pixel format is
// asked for, and the same bytes on every SIMD target. Method: Pillow's algorithm written out in
// double precision (pillow_resize.h), on random images of awkward sizes.
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codec/image.h"
#include "tests/codec/pillow_resize.h"

namespace feedwater::server {
namespace {

constexpr int kChannels = 3;

std::vector<uint8_t> RandomImage(Size size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> pixels(static_cast<size_t>(size.width) * size.height * kChannels);
  // Noise, edges and flat parts: what an overshooting filter gets wrong first.
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = (i / 97) % 3 == 0 ? random() % 256 : (i / 31) % 2 == 0 ? 255 : 0;
  return pixels;
}

Geometry Whole(Size from, Size to, Interpolation interpolation) {
  Geometry geometry;
  geometry.crop = {0, 0, from.width, from.height};
  geometry.scaled = to;
  geometry.window = {0, 0, to.width, to.height};
  geometry.interpolation = interpolation;
  return geometry;
}

std::vector<uint8_t> Resample(const std::vector<uint8_t>& pixels, Size size,
                              const Geometry& geometry) {
  static ImageWorkspace workspace;
  std::vector<uint8_t> out(static_cast<size_t>(geometry.window.width) * geometry.window.height *
                           kChannels);
  const absl::Status status = ResampleInto(pixels.data(), size, kChannels, geometry, PixelFormat(),
                                           reinterpret_cast<std::byte*>(out.data()), workspace);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

struct Case {
  Size from, to;
};
const Case kCases[] = {{{500, 375}, {224, 224}}, {{224, 224}, {224, 100}}, {{37, 53}, {224, 224}},
                       {{1, 1}, {9, 7}},         {{640, 3}, {5, 3}},       {{3, 701}, {3, 2}},
                       {{100, 100}, {99, 101}},  {{1000, 700}, {7, 5}},    {{16, 16}, {33, 17}},
                       {{255, 129}, {128, 64}},  {{700, 500}, {100, 90}},  {{90, 90}, {6, 7}},
                       {{2, 2}, {1, 1}},         {{97, 41}, {31, 1}}};

TEST(Resample, IsPillowsWithinOneStep) {
  for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    uint32_t seed = 1;
    for (const Case& c : kCases) {
      SCOPED_TRACE(absl::StrCat(c.from.width, "x", c.from.height, " -> ", c.to.width, "x",
                                c.to.height, " filter ", static_cast<int>(interpolation)));
      const auto pixels = RandomImage(c.from, seed++);
      const auto expected =
          testing::PillowResize(pixels, c.from, c.to, interpolation == Interpolation::kBicubic);
      const auto got = Resample(pixels, c.from, Whole(c.from, c.to, interpolation));
      int worst = 0;
      for (size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::abs(got[i] - expected[i]));
      EXPECT_LE(worst, 1);
    }
  }
}

TEST(Resample, NearestPicksTheSampleUnderTheCentre) {
  const Size from{7, 5}, to{4, 9};
  const auto pixels = RandomImage(from, 3);
  const auto got = Resample(pixels, from, Whole(from, to, Interpolation::kNearest));
  for (int y = 0; y < to.height; ++y) {
    for (int x = 0; x < to.width; ++x) {
      const int sx = static_cast<int>((x + 0.5) * from.width / to.width),
                sy = static_cast<int>((y + 0.5) * from.height / to.height);
      for (int c = 0; c < kChannels; ++c) {
        EXPECT_EQ(got[(y * to.width + x) * kChannels + c],
                  pixels[(sy * from.width + sx) * kChannels + c])
            << x << "," << y;
      }
    }
  }
}

TEST(Resample, AWindowIsThatPartOfTheWhole) {
  const Size from{301, 203};
  const auto pixels = RandomImage(from, 5);
  struct Case {
    Size to;
    Interpolation interpolation;
  };
  for (const auto& [to, interpolation] :
       {Case{{120, 90}, Interpolation::kBilinear}, Case{{120, 90}, Interpolation::kBicubic},
        Case{{120, 90}, Interpolation::kNearest}, Case{{301, 90}, Interpolation::kNearest},
        Case{from, Interpolation::kBilinear}}) {
    const auto whole = Resample(pixels, from, Whole(from, to, interpolation));
    std::mt19937 random(7);
    for (int round = 0; round < 20; ++round) {
      Geometry geometry = Whole(from, to, interpolation);
      geometry.window.x = static_cast<int>(random() % 100);
      geometry.window.y = static_cast<int>(random() % 80);
      geometry.window.width = 1 + static_cast<int>(random() % (to.width - geometry.window.x));
      geometry.window.height = 1 + static_cast<int>(random() % (to.height - geometry.window.y));
      geometry.flip_horizontal = round % 2 == 1;
      geometry.flip_vertical = round % 4 > 1;
      const auto part = Resample(pixels, from, geometry);
      const Rect& w = geometry.window;
      for (int y = 0; y < w.height; ++y) {
        for (int x = 0; x < w.width; ++x) {
          const int sx = w.x + (geometry.flip_horizontal ? w.width - 1 - x : x);
          const int sy = w.y + (geometry.flip_vertical ? w.height - 1 - y : y);
          for (int c = 0; c < kChannels; ++c) {
            ASSERT_EQ(part[(y * w.width + x) * kChannels + c],
                      whole[(sy * to.width + sx) * kChannels + c])
                << "round " << round << " at " << x << "," << y;
          }
        }
      }
    }
  }
}

uint16_t BFloat16(float value) {  // to nearest even
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

TEST(PixelFormats, AreTheAffineValueOfTheUint8Pixel) {
  const Size size{61, 47};
  const auto pixels = RandomImage(size, 11);
  const Geometry geometry = Whole(size, size, Interpolation::kBilinear);
  ImageWorkspace workspace;
  for (const bool planar : {false, true}) {
    PixelFormat format;
    format.affine = true;
    format.planar = planar;
    const float mean[] = {123.675f, 116.28f, 103.53f}, deviation[] = {58.395f, 57.12f, 57.375f};
    for (int c = 0; c < kChannels; ++c) {
      format.mean[c] = mean[c];
      format.inverse_std[c] = 1 / deviation[c];
    }
    std::vector<float> f32(pixels.size());
    std::vector<uint16_t> bf16(pixels.size());
    format.type = PixelType::kFloat32;
    ASSERT_TRUE(ResampleInto(pixels.data(), size, kChannels, geometry, format,
                             reinterpret_cast<std::byte*>(f32.data()), workspace)
                    .ok());
    format.type = PixelType::kBFloat16;
    ASSERT_TRUE(ResampleInto(pixels.data(), size, kChannels, geometry, format,
                             reinterpret_cast<std::byte*>(bf16.data()), workspace)
                    .ok());
    for (size_t i = 0; i < pixels.size(); ++i) {
      const size_t c = i % kChannels,
                   place = planar ? c * size.width * size.height + i / kChannels : i;
      const float centred = static_cast<float>(pixels[i]) - format.mean[c];
      const float expected = centred * format.inverse_std[c];
      ASSERT_EQ(f32[place], expected) << i;
      ASSERT_EQ(bf16[place], BFloat16(expected)) << i;
    }
  }
}

// Widths of whole and of broken cache lines, memory that begins a line and memory that does not.
TEST(PixelFormats, AreTheSameBytesWhenStreamedPastTheCaches) {
  ImageWorkspace workspace;
  for (const int width : {224, 64, 37, 8}) {
    const Size size{width + 20, 50}, to{width, 9};
    const auto pixels = RandomImage(size, 13);
    for (const PixelType type : {PixelType::kFloat16, PixelType::kBFloat16, PixelType::kFloat32}) {
      for (const size_t offset : {0, 4}) {
        PixelFormat format;
        format.type = type;
        format.planar = format.affine = true;
        std::vector<std::byte> out[2];
        for (const bool stream : {false, true}) {
          format.stream = stream;
          out[stream].resize(4 * kChannels * to.width * to.height + 128);
          const size_t start = -reinterpret_cast<uintptr_t>(out[stream].data()) % 64 + offset;
          ASSERT_TRUE(ResampleInto(pixels.data(), size, kChannels,
                                   Whole(size, to, Interpolation::kBilinear), format,
                                   out[stream].data() + start, workspace)
                          .ok());
          out[stream].erase(out[stream].begin(), out[stream].begin() + start);
          out[stream].resize(4 * kChannels * to.width * to.height);
        }
        EXPECT_TRUE(out[0] == out[1]) << width << " " << static_cast<int>(type) << " " << offset;
      }
    }
  }
}

// Everything that a target could compute differently, one after the other.
std::vector<uint8_t> Everything() {
  std::vector<uint8_t> all;
  ImageWorkspace workspace;
  uint32_t seed = 1;
  for (const Case& c : kCases) {
    const auto pixels = RandomImage(c.from, seed++);
    for (const Interpolation interpolation :
         {Interpolation::kBilinear, Interpolation::kBicubic, Interpolation::kNearest}) {
      for (const PixelType type :
           {PixelType::kUInt8, PixelType::kFloat16, PixelType::kBFloat16, PixelType::kFloat32}) {
        Geometry geometry = Whole(c.from, c.to, interpolation);
        geometry.flip_horizontal = seed % 2 == 0;
        PixelFormat format;
        format.type = type;
        format.planar = seed % 3 == 0;
        format.affine = type != PixelType::kUInt8;
        for (int i = 0; i < kChannels; ++i) {
          format.mean[i] = 100.7f + static_cast<float>(i);
          format.inverse_std[i] = 1 / (50.3f + static_cast<float>(i));
        }
        const size_t bytes = type == PixelType::kUInt8 ? 1 : type == PixelType::kFloat32 ? 4 : 2;
        std::vector<uint8_t> out(bytes * c.to.width * c.to.height * kChannels);
        EXPECT_TRUE(ResampleInto(pixels.data(), c.from, kChannels, geometry, format,
                                 reinterpret_cast<std::byte*>(out.data()), workspace)
                        .ok());
        all.insert(all.end(), out.begin(), out.end());
      }
    }
  }
  return all;
}

TEST(SimdTargets, GiveEqualBytes) {
  const auto best = Everything();
  int compared = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(SimdTarget());
    EXPECT_TRUE(Everything() == best);
    ++compared;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(compared, 1);
}

}  // namespace
}  // namespace feedwater::server
