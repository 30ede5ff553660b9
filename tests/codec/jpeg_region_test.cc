// A region decoded alone must equal the same region of the whole decoded image, bit for bit, at
// full size and decoded at 1/2, 1/4 and 1/8: for every photo of the outside data, for every odd
// file there, and for JPEGs made here over samplings, sizes, qualities and coding processes.
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/codec/test_images.h"

namespace feedwater::server::testing {
namespace {

std::string Describe(const Rect& r) {
  return absl::StrCat(r.width, "x", r.height, "+", r.x, "+", r.y);
}

// Pillow's conversion of Adobe's inverted CMYK, spelt as in its C source.
void CmykToRgb(Pixels& image) {
  std::vector<uint8_t> rgb;
  for (size_t i = 0; i < image.bytes.size(); i += 4) {
    const int nk = 255 - (255 - image.bytes[i + 3]);
    for (int c = 0; c < 3; ++c) {
      const int ink = 255 - image.bytes[i + c];
      int product = ink * nk + 128;
      product = ((product >> 8) + product) >> 8;
      rgb.push_back(static_cast<uint8_t>(std::min(255, std::max(0, nk - product))));
    }
  }
  image.bytes = rgb;
  image.channels = 3;
}

void ExpectRegionsEqual(const std::string& encoded, const std::string& name, int regions,
                        std::mt19937& random, ImageWorkspace& workspace) {
  Pixels whole;
  long warnings = 0;
  PlainDecoder decoder;
  ASSERT_TRUE(decoder.Decode(encoded, &whole, &warnings)) << name;
  if (whole.channels == 4) CmykToRgb(whole);
  for (int i = 0; i < regions; ++i) {
    const Rect crop =
        i == 0 ? Rect{0, 0, whole.size.width, whole.size.height} : RandomRect(whole.size, random);
    std::vector<uint8_t> got(static_cast<size_t>(crop.width) * crop.height * 3);
    const absl::Status status =
        DecodeInto(AsBytes(encoded), false, ImageLimits(), CropOnly(crop), PixelFormat(),
                   reinterpret_cast<std::byte*>(got.data()), workspace);
    ASSERT_TRUE(status.ok()) << name << ": " << status;
    for (int y = 0; y < crop.height; ++y) {
      ASSERT_EQ(0, std::memcmp(&got[static_cast<size_t>(y) * crop.width * 3],
                               whole.at(crop.x, crop.y + y), crop.width * 3))
          << name << " " << whole.size.width << "x" << whole.size.height << " region "
          << Describe(crop) << " row " << y;
    }
  }
  for (const int scale : {2, 4, 8}) {
    ASSERT_TRUE(decoder.Decode(encoded, &whole, &warnings, scale)) << name;
    if (whole.channels == 4) CmykToRgb(whole);
    const auto info = ReadImageInfo(AsBytes(encoded), false, ImageLimits(), workspace);
    ASSERT_TRUE(info.ok());
    // All samples that lie wholly in the image, or some of them: they come out as they are.
    const Size inner{info->size.width / scale, info->size.height / scale};
    if (inner.width == 0 || inner.height == 0) break;
    const Rect part =
        random() % 3 == 0 ? Rect{0, 0, inner.width, inner.height} : RandomRect(inner, random);
    const Rect crop{part.x * scale, part.y * scale, part.width * scale, part.height * scale};
    std::vector<uint8_t> got(static_cast<size_t>(part.width) * part.height * 3);
    const absl::Status status =
        DecodeInto(AsBytes(encoded), false, ImageLimits(), ScaledCrop(crop, scale), PixelFormat(),
                   reinterpret_cast<std::byte*>(got.data()), workspace);
    ASSERT_TRUE(status.ok()) << name << ": " << status;
    for (int y = 0; y < part.height; ++y) {
      ASSERT_EQ(0, std::memcmp(&got[static_cast<size_t>(y) * part.width * 3],
                               whole.at(part.x, part.y + y), part.width * 3))
          << name << " region " << Describe(crop) << " at 1/" << scale << " row " << y;
    }
  }
}

TEST(JpegRegion, EqualsTheWholeDecodeForEveryPhoto) {
  const auto files = TestDataFiles("photos");
  if (files.empty()) GTEST_SKIP() << "no photos: set FEEDWATER_TEST_DATA";
  std::mt19937 random(1);
  ImageWorkspace workspace;
  for (const auto& file : files) {
    ExpectRegionsEqual(ReadFile(file), file.filename(), 6, random, workspace);
    if (HasFatalFailure()) return;
  }
}

TEST(JpegRegion, EqualsTheWholeDecodeForEveryOddFileThatIsNotDamaged) {
  const auto files = TestDataFiles("images");
  if (files.empty()) GTEST_SKIP() << "no images: set FEEDWATER_TEST_DATA";
  std::mt19937 random(2);
  ImageWorkspace workspace;
  int compared = 0;
  for (const auto& file : files) {
    if (file.extension() != ".jpg") continue;
    const std::string encoded = ReadFile(file);
    Pixels whole;
    long warnings = 0;
    PlainDecoder decoder;
    if (!decoder.Decode(encoded, &whole, &warnings) || warnings > 0) continue;
    ExpectRegionsEqual(encoded, file.filename(), 20, random, workspace);
    if (HasFatalFailure()) return;
    ++compared;
  }
  EXPECT_GE(compared, 8);
}

struct Family {
  const char* name;
  JpegOptions options;
  int channels = 3;
};

class JpegFamily : public ::testing::TestWithParam<Family> {};

TEST_P(JpegFamily, RegionsEqualTheWholeDecode) {
  const Family& family = GetParam();
  constexpr int kQualities[] = {5, 30, 60, 85, 95, 100};
  std::mt19937 random(3);
  ImageWorkspace workspace;
  for (int i = 0; i < 120; ++i) {
    Size size{std::uniform_int_distribution<int>(1, 70)(random),
              std::uniform_int_distribution<int>(1, 70)(random)};
    if (i % 6 == 0) size.width += 131;
    if (i % 5 == 0) size.height += 77;
    if (i % 30 == 29) size = {1021, 517};
    JpegOptions options = family.options;
    options.quality = kQualities[i % 6];
    if (i % 7 == 3) options.restart_rows = 1;
    const Pixels image = NoisyImage(size, family.channels, random);
    ExpectRegionsEqual(EncodeJpeg(image, options), absl::StrCat(family.name, " #", i), 12, random,
                       workspace);
    if (HasFatalFailure()) return;
  }
}

JpegOptions Sampling(int h, int v) {
  JpegOptions options;
  options.luma_h = h;
  options.luma_v = v;
  return options;
}
JpegOptions With(JpegOptions options, bool JpegOptions::*flag, bool value = true) {
  options.*flag = value;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    All, JpegFamily,
    ::testing::Values(Family{"444", Sampling(1, 1)}, Family{"422", Sampling(2, 1)},
                      Family{"420", Sampling(2, 2)}, Family{"440", Sampling(1, 2)},
                      Family{"411", Sampling(4, 1)}, Family{"441", Sampling(1, 4)},
                      Family{"410", Sampling(4, 2)}, Family{"311", Sampling(3, 1)},
                      Family{"gray", Sampling(1, 1), 1}, Family{"gray22", Sampling(2, 2), 1},
                      Family{"cmyk", Sampling(1, 1), 4},
                      Family{"ycck420", With(Sampling(2, 2), &JpegOptions::ycck), 4},
                      Family{"progressive444", With(Sampling(1, 1), &JpegOptions::progressive)},
                      Family{"progressive422", With(Sampling(2, 1), &JpegOptions::progressive)},
                      Family{"progressive420", With(Sampling(2, 2), &JpegOptions::progressive)},
                      Family{"progressive440", With(Sampling(1, 2), &JpegOptions::progressive)},
                      Family{"progressiveGray", With(Sampling(1, 1), &JpegOptions::progressive), 1},
                      Family{"scans444", With(Sampling(1, 1), &JpegOptions::interleaved, false)},
                      Family{"scans420", With(Sampling(2, 2), &JpegOptions::interleaved, false)},
                      Family{"arithmetic420", With(Sampling(2, 2), &JpegOptions::arithmetic)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace feedwater::server::testing
