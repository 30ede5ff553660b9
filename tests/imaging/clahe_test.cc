// CLAHE and Lab of 8 bits against OpenCV's own.
#include "server/imaging/clahe.h"

#include <gtest/gtest.h>

#include <opencv2/imgproc.hpp>

#include "server/imaging/color_space.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

using Bytes = std::vector<uint8_t>;

Bytes OpenCvs(Bytes pixels, Size size, int channels, double clip, Size tiles) {
  const cv::Ptr<cv::CLAHE> clahe = cv::createCLAHE(clip, {tiles.width, tiles.height});
  const cv::Mat in(size.height, size.width, CV_8UC(channels), pixels.data());
  cv::Mat out;
  if (channels == 1) {
    clahe->apply(in, out);
  } else {
    cv::Mat lab, planes[3];
    cv::cvtColor(in, lab, cv::COLOR_RGB2Lab);
    cv::split(lab, planes);
    cv::Mat light;
    clahe->apply(planes[0], light);
    planes[0] = light;
    cv::merge(planes, 3, lab);
    cv::cvtColor(lab, out, cv::COLOR_Lab2RGB);
  }
  return Bytes(out.data, out.data + pixels.size());
}

// A picture of soft shades, as photos have, with some noise.
Bytes Shades(Size size, int channels) {
  Bytes pixels = Pattern(size.height, size.width, channels);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const size_t pixel = i / static_cast<size_t>(channels);
    const size_t x = pixel % static_cast<size_t>(size.width),
                 y = pixel / static_cast<size_t>(size.width);
    pixels[i] = static_cast<uint8_t>(std::min<size_t>(255, x + y / 2 + pixels[i] / 8));
  }
  return pixels;
}

TEST(Clahe, IsOpenCvs) {
  for (const Size size : {Size{64, 48}, Size{97, 61}, Size{64, 45}, Size{5, 3}, Size{1, 1}}) {
    for (const int channels : {1, 3}) {
      const Bytes pixels = Shades(size, channels);
      for (const auto& [clip, tiles] :
           {std::pair{2.5, Size{8, 8}}, {1.0, Size{5, 3}}, {40.0, Size{1, 1}}}) {
        const Bytes made = SameOnEveryTarget([&] {
          std::vector<std::byte> scratch(ClaheScratch(size, tiles));
          Bytes out(pixels.size());
          EXPECT_TRUE(
              Clahe(pixels.data(), size, channels, clip, tiles, scratch.data(), clock, out.data())
                  .ok());
          return out;
        });
        EXPECT_EQ(made, OpenCvs(pixels, size, channels, clip, tiles))
            << size.width << "x" << size.height << "x" << channels << " clip " << clip;
      }
    }
  }
}

TEST(Clahe, AnyLimitOverAllPixelsOfATileIsNone) {
  const Size size{64, 48}, tiles{2, 2};
  const Bytes pixels = Shades(size, 1);
  const auto made = [&](double clip) {
    std::vector<std::byte> scratch(ClaheScratch(size, tiles));
    Bytes out(pixels.size());
    EXPECT_TRUE(Clahe(pixels.data(), size, 1, clip, tiles, scratch.data(), clock, out.data()).ok());
    return out;
  };
  EXPECT_EQ(made(1e9), made(256));  // 1e9 * 768 / 256 is no int
  EXPECT_NE(made(256), made(1));
}

TEST(Clahe, TheClockIsLookedAtWithinATile) {
  const Size size{1024, 512}, tiles{1, 1};
  const Bytes pixels = Shades(size, 1);
  std::vector<std::byte> scratch(ClaheScratch(size, tiles));
  Bytes out(pixels.size());
  WorkClock counted;
  ASSERT_TRUE(Clahe(pixels.data(), size, 1, 2, tiles, scratch.data(), counted, out.data()).ok());
  // Once a row that is written, and for each 16,384 pixels that are counted.
  EXPECT_GE(counted.beats(), 512u + 1024 * 512 / 16384);
}

TEST(Lab, BothWaysAreOpenCvs) {
  constexpr size_t kPlane = 256 * 256;
  for (int first = 0; first < 256; first += 15) {  // 0, 15, ... 255
    Bytes planes(3 * kPlane), pixels(3 * kPlane);
    for (size_t i = 0; i < kPlane; ++i) {
      const uint8_t pixel[3] = {static_cast<uint8_t>(first), static_cast<uint8_t>(i / 256),
                                static_cast<uint8_t>(i % 256)};
      for (size_t c = 0; c < 3; ++c) planes[c * kPlane + i] = pixels[3 * i + c] = pixel[c];
    }
    for (const bool back : {false, true}) {
      const Bytes made = SameOnEveryTarget([&] {
        Bytes copy = planes;
        back ? FromLab(copy.data(), kPlane, kPlane) : ToLab(copy.data(), kPlane, kPlane);
        return copy;
      });
      cv::Mat out;
      cv::cvtColor(cv::Mat(256, 256, CV_8UC3, pixels.data()), out,
                   back ? cv::COLOR_Lab2RGB : cv::COLOR_RGB2Lab);
      for (size_t i = 0; i < 3 * kPlane; ++i)
        ASSERT_EQ(made[i % 3 * kPlane + i / 3], out.data[i]) << first << " " << i << " " << back;
    }
  }
}

}  // namespace
}  // namespace feedwater::server
