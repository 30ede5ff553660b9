// What a JPEG makes of pixels, against the file that libjpeg-turbo writes and reads.
#include <gtest/gtest.h>
#include <malloc.h>

#include "server/base/sanitized.h"
#include "server/codec/image.h"
#include "server/codec/image_writer.h"
#include "server/codec/jpeg/round_trip.h"
#include "server/storage/engine.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

using Bytes = std::vector<uint8_t>;

WorkClock never;

Bytes Here(const Bytes& pixels, Size size, int channels, int quality) {
  jpeg::RoundTrip trip;
  Bytes out(pixels.size());
  EXPECT_TRUE(trip.Run(pixels.data(), size, channels, quality, never, out.data()).ok());
  return out;
}

// By libjpeg-turbo in both directions.
Bytes ByFile(const Bytes& pixels, Size size, int channels, int quality) {
  std::string file = WritePicture({pixels.data(), size, channels}, ".jpg", quality).value();
  const size_t bytes = file.size();
  file.resize(bytes + kReadPadding);
  Geometry whole;
  whole.crop = whole.window = {0, 0, size.width, size.height};
  whole.scaled = size;
  ImageWorkspace workspace;
  workspace.UseOwnDecoder(false);
  Bytes rgb(static_cast<size_t>(3 * size.width * size.height));
  const absl::Status decoded =
      DecodeInto({reinterpret_cast<const std::byte*>(file.data()), bytes}, false, ImageLimits(),
                 whole, PixelFormat(), reinterpret_cast<std::byte*>(rgb.data()), workspace);
  EXPECT_TRUE(decoded.ok()) << decoded;
  if (channels == 3) return rgb;
  Bytes grey(pixels.size());
  for (size_t i = 0; i < grey.size(); ++i) grey[i] = rgb[3 * i];
  return grey;
}

Bytes Smooth(Size size, int channels) {
  Bytes pixels(static_cast<size_t>(size.width * size.height * channels));
  for (int i = 0; i < static_cast<int>(pixels.size()); ++i) {
    const int x = i / channels % size.width, y = i / channels / size.width, c = i % channels;
    pixels[static_cast<size_t>(i)] = static_cast<uint8_t>((3 * x + 2 * y * (c + 1) + 40 * c) % 256);
  }
  return pixels;
}

TEST(JpegRoundTrip, GivesThePixelsOfAFileByLibjpegTurbo) {
  for (const Size size : {Size{64, 48}, Size{67, 65}, Size{5, 1}, Size{16, 17}, Size{33, 16},
                          Size{6, 9}, Size{250, 31}}) {
    for (const int channels : {1, 3}) {
      for (const Bytes& pixels :
           {Smooth(size, channels), Pattern(size.height, size.width, channels)}) {
        for (const int quality : {1, 10, 49, 50, 75, 95, 100}) {
          const Bytes made =
              SameOnEveryTarget([&] { return Here(pixels, size, channels, quality); });
          ASSERT_EQ(made, ByFile(pixels, size, channels, quality))
              << size.width << "x" << size.height << "x" << channels << " quality " << quality;
        }
      }
    }
  }
}

TEST(JpegRoundTrip, ImagesUpToFourPixelsWideKeepTheirColours) {
  for (const Size size : {Size{1, 1}, Size{4, 4}, Size{3, 20}}) {
    const Bytes pixels = Smooth(size, 3);
    const Bytes made = SameOnEveryTarget([&] { return Here(pixels, size, 3, 100); });
    for (size_t i = 0; i < pixels.size(); ++i) EXPECT_NEAR(made[i], pixels[i], 3) << i;
  }
}

TEST(JpegRoundTrip, HardEdgesAtTheLowestQualityAreClippedAlikeEverywhere) {
  const Size size{160, 160};
  Bytes pixels = Pattern(size.height, size.width, 3);
  for (uint8_t& pixel : pixels) pixel = pixel < 128 ? 0 : 255;
  const Bytes made = SameOnEveryTarget([&] { return Here(pixels, size, 3, 1); });
  EXPECT_NE(made, pixels);
}

TEST(JpegRoundTrip, DivisionsByStepsAreExact) {
  for (int step = 1; step < 256; ++step) {
    uint16_t steps[jpeg::kBlockSamples];
    std::fill_n(steps, jpeg::kBlockSamples, static_cast<uint16_t>(step));
    const jpeg::Divisors divisors(steps);
    for (uint32_t n = 0; n < 1u << 15; ++n) {
      ASSERT_EQ(((n * divisors.reciprocal[0]) >> 16) * divisors.scale[0] >> 16,
                n / (8u * static_cast<uint32_t>(step)))
          << n << " by " << step;
    }
    EXPECT_EQ(divisors.half[0], 4 * step);
  }
}

TEST(JpegRoundTrip, AnImageALittleLargerTakesNoMoreThanItsNeed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has an allocator of its own";
  const Size first{4000, 16}, second{4100, 16};
  const Bytes pixels = Smooth(second, 3);
  Bytes out(pixels.size());
  const auto taken = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const int64_t before = taken();
  jpeg::RoundTrip trip;
  for (const Size size : {first, second})
    ASSERT_TRUE(trip.Run(pixels.data(), size, 3, 50, never, out.data()).ok());
  EXPECT_LE(taken() - before, jpeg::RoundTrip::Bytes(second, 3));
}

TEST(JpegRoundTrip, ALaterImageDoesNotSeeAnEarlierOne) {
  jpeg::RoundTrip trip;
  for (const auto& [size, channels] :
       {std::pair{Size{90, 70}, 3}, {Size{20, 10}, 3}, {Size{3, 3}, 3}, {Size{40, 40}, 1}}) {
    const Bytes pixels = Smooth(size, channels);
    Bytes out(pixels.size());
    ASSERT_TRUE(trip.Run(pixels.data(), size, channels, 40, never, out.data()).ok());
    EXPECT_EQ(out, Here(pixels, size, channels, 40));
  }
}

}  // namespace
}  // namespace feedwater::server
