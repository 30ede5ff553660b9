// Goal: a progressive or arithmetic-coded JPEG becomes a baseline one of the same pixels, with the
// markers of applications; other JPEGs stay; damage is an error and never a crash.
// Method: noisy images of random sizes and samplings, written by libjpeg-turbo; cuts and flips.
#include "server/codec/jpeg/baseline_transcoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codec/test_images.h"

namespace feedwater::server {
namespace {

using testing::AsBytes;
using testing::EncodeJpeg;
using testing::JpegOptions;
using testing::NoisyImage;
using testing::Pixels;
using testing::PlainDecoder;

Pixels DecodePlainly(const std::string& jpeg) {
  PlainDecoder decoder;
  Pixels image;
  long warnings = 0;
  EXPECT_TRUE(decoder.Decode(jpeg, &image, &warnings));
  EXPECT_EQ(warnings, 0);
  return image;
}

bool HasMarker(const std::string& jpeg, unsigned char marker) {
  return jpeg.find(std::string("\xFF") + static_cast<char>(marker)) != std::string::npos;
}

TEST(BaselineTranscoderTest, ThePixelsAreTheSame) {
  std::mt19937 random(7);
  for (int i = 0; i < 120; ++i) {
    JpegOptions options;
    options.progressive = i % 3 != 2;
    options.arithmetic = i % 3 != 0;  // progressive, both, sequential arithmetic
    options.luma_h = 1 + random() % 2;
    options.luma_v = 1 + random() % 2;
    options.quality = 30 + random() % 71;
    const int channels = i % 7 == 0 ? 1 : i % 11 == 0 ? 4 : 3;
    options.ycck = channels == 4 && i % 2 == 0;
    if (channels == 1) options.luma_h = options.luma_v = 1;
    const Size size{1 + static_cast<int>(random() % 200), 1 + static_cast<int>(random() % 200)};
    const std::string jpeg = EncodeJpeg(NoisyImage(size, channels, random), options);
    const auto baseline = ToBaselineJpeg(AsBytes(jpeg), ImageLimits());
    ASSERT_TRUE(baseline.ok()) << i << baseline.status();
    ASSERT_TRUE(baseline->has_value()) << i;
    EXPECT_FALSE(HasMarker(**baseline, 0xC2)) << i;
    const Pixels was = DecodePlainly(jpeg), is = DecodePlainly(**baseline);
    EXPECT_EQ(was.size, is.size);
    EXPECT_EQ(was.bytes, is.bytes) << i;
    EXPECT_EQ(*ToBaselineJpeg(AsBytes(**baseline), ImageLimits()), std::nullopt) << i;
  }
}

TEST(BaselineTranscoderTest, MarkersOfApplicationsStayAndAreNotDoubled) {
  std::mt19937 random(3);
  JpegOptions options;
  options.progressive = true;
  std::string jpeg = EncodeJpeg(NoisyImage({40, 30}, 3, random), options);
  const std::string exif(
      "\xFF\xE1\0\x0A"
      "Exif\0\0ab",
      12),
      comment(
          "\xFF\xFE\0\x05"
          "hey",
          7);
  jpeg.insert(20, exif + comment);  // behind JFIF's segment
  const auto baseline = ToBaselineJpeg(AsBytes(jpeg), ImageLimits());
  ASSERT_TRUE(baseline.ok() && baseline->has_value()) << baseline.status();
  EXPECT_NE((*baseline)->find(exif), std::string::npos);
  EXPECT_NE((*baseline)->find(comment), std::string::npos);
  EXPECT_EQ((*baseline)->find("JFIF"), (*baseline)->rfind("JFIF"));
}

TEST(BaselineTranscoderTest, SequentialJpegsStay) {
  std::mt19937 random(5);
  JpegOptions options;
  options.restart_rows = 1;
  const std::string jpeg = EncodeJpeg(NoisyImage({64, 48}, 3, random), options);
  const auto baseline = ToBaselineJpeg(AsBytes(jpeg), ImageLimits());
  ASSERT_TRUE(baseline.ok());
  EXPECT_FALSE(baseline->has_value());
}

// As baseline it would lose the library's smoothing, and so its pixels.
TEST(BaselineTranscoderTest, AProgressiveJpegThatLeavesSomethingOutStays) {
  std::mt19937 random(5);
  JpegOptions options;
  options.scans = testing::RandomScript(3, random);
  const Pixels image = NoisyImage({64, 48}, 3, random);
  EXPECT_TRUE(ToBaselineJpeg(AsBytes(EncodeJpeg(image, options)), ImageLimits())->has_value());
  options.scans.pop_back();
  const auto baseline = ToBaselineJpeg(AsBytes(EncodeJpeg(image, options)), ImageLimits());
  ASSERT_TRUE(baseline.ok()) << baseline.status();
  EXPECT_FALSE(baseline->has_value());
}

TEST(BaselineTranscoderTest, LimitsHold) {
  std::mt19937 random(5);
  JpegOptions options;
  options.progressive = true;
  const std::string jpeg = EncodeJpeg(NoisyImage({64, 48}, 3, random), options);
  ImageLimits limits;
  limits.max_pixels = 64 * 48 - 1;
  EXPECT_THAT(std::string(ToBaselineJpeg(AsBytes(jpeg), limits).status().message()),
              ::testing::HasSubstr("max_pixels"));
  limits = ImageLimits();
  limits.max_scans = 3;
  EXPECT_THAT(std::string(ToBaselineJpeg(AsBytes(jpeg), limits).status().message()),
              ::testing::HasSubstr("max_scans"));
}

TEST(BaselineTranscoderTest, DamageIsAnErrorOrAnotherJpeg) {
  std::mt19937 random(11);
  JpegOptions options;
  options.progressive = true;
  const std::string jpeg = EncodeJpeg(NoisyImage({48, 40}, 3, random), options);
  for (size_t keep = 0; keep + 2 < jpeg.size(); ++keep) {
    const auto cut = ToBaselineJpeg(AsBytes(jpeg.substr(0, keep)), ImageLimits());
    EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument) << keep;
  }
  for (int i = 0; i < 3000; ++i) {
    std::string flipped = jpeg;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 + random() % 255);
    (void)ToBaselineJpeg(AsBytes(flipped), ImageLimits());
  }
}

TEST(BaselineTranscoderTest, NoFileOfTheOutsideDataDoesHarm) {
  for (const auto& path : testing::TestDataFiles("hostile")) {
    const std::string bytes = testing::ReadFile(path);
    const auto baseline = ToBaselineJpeg(AsBytes(bytes), ImageLimits());
    if (baseline.ok() && baseline->has_value()) DecodePlainly(**baseline);
  }
}

}  // namespace
}  // namespace feedwater::server
