// Every way to decode a JPEG (libjpeg-turbo, the own decoder, a coefficient document) gives the
// same pixels for the same region, and a damaged stream the same verdict.
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "hwy/targets.h"
#include "server/codec/jpeg/frame.h"
#include "tests/codec/seek_index_map.h"
#include "tests/codec/test_images.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server::testing {
namespace {

struct Outcome {
  absl::Status status;
  std::vector<uint8_t> pixels;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.status == b.status && (!a.status.ok() || a.pixels == b.pixels);
  }
};

Outcome Decode(absl::Span<const std::byte> encoded, const Rect& crop, ImageWorkspace& workspace) {
  Outcome outcome;
  outcome.pixels.resize(static_cast<size_t>(crop.width) * crop.height * 3);
  outcome.status = DecodeInto(encoded, false, ImageLimits(), CropOnly(crop), PixelFormat(),
                              reinterpret_cast<std::byte*>(outcome.pixels.data()), workspace);
  return outcome;
}

class JpegLevels : public ::testing::Test {
 protected:
  JpegLevels() {
    turbo_.UseOwnDecoder(false);
    growing_.UseSeekIndexes(&grown_);
    whole_.UseSeekIndexes(&made_);
  }

  // Compares all levels on some regions. Returns whether the own decoder took the image.
  bool Compare(const std::string& encoded, const std::string& name, int regions,
               std::mt19937& random) {
    const auto info = ReadImageInfo(AsBytes(encoded), false, ImageLimits(), own_);
    if (!info.ok()) return false;
    const uint64_t before = own_.counts().own_decoder;
    const absl::Span<const std::byte> packed =
        PackCoefficients(AsBytes(encoded), ImageLimits(), packer_);
    // As in a read buffer: readable behind the end.
    std::vector<std::byte> document(packed.begin(), packed.end());
    document.resize(document.size() + 64);
    const absl::Span<const std::byte> kept = absl::MakeConstSpan(document).first(packed.size());
    MakeSeekIndex(AsBytes(encoded), ImageLimits(), whole_);
    for (int i = 0; i < regions; ++i) {
      // The whole image last: until then the index grows with the regions.
      const Rect crop = i == regions - 1 ? Rect{0, 0, info->size.width, info->size.height}
                                         : RandomRect(info->size, random);
      const Outcome expected = Decode(AsBytes(encoded), crop, turbo_);
      EXPECT_TRUE(Decode(AsBytes(encoded), crop, own_) == expected)
          << name << " own decoder, region " << crop.width << "x" << crop.height << "+" << crop.x
          << "+" << crop.y << ": " << expected.status;
      EXPECT_TRUE(Decode(AsBytes(encoded), crop, growing_) == expected)
          << name << " with an index that grows, region " << crop.width << "x" << crop.height
          << "+" << crop.x << "+" << crop.y << ": " << expected.status;
      EXPECT_TRUE(Decode(AsBytes(encoded), crop, whole_) == expected)
          << name << " with its whole index, region " << crop.width << "x" << crop.height << "+"
          << crop.x << "+" << crop.y << ": " << expected.status;
      if (packed.empty()) continue;
      EXPECT_TRUE(Decode(kept, crop, store_) == expected)
          << name << " coefficients, region " << crop.width << "x" << crop.height << "+" << crop.x
          << "+" << crop.y << ": " << expected.status;
    }
    packed_ += !packed.empty();
    return own_.counts().own_decoder > before;
  }

  SeekIndexMap grown_, made_;
  ImageWorkspace turbo_, own_, growing_, whole_, store_, packer_;
  int packed_ = 0;
};

TEST_F(JpegLevels, AgreeOnEveryPhoto) {
  const auto files = TestDataFiles("photos");
  if (files.empty()) GTEST_SKIP() << "no photos: set FEEDWATER_TEST_DATA";
  std::mt19937 random(1);
  int taken = 0;
  for (const auto& file : files) {
    taken += Compare(ReadFile(file), file.filename(), 6, random);
    if (HasFailure()) return;
  }
  const int most = static_cast<int>(files.size()) * 95 / 100;
  EXPECT_GT(taken, most);
  EXPECT_GT(packed_, most);
  EXPECT_GT(static_cast<int>(made_.size()), most);
  EXPECT_GT(growing_.counts().with_seek_index, static_cast<uint64_t>(most) * 5);
}

TEST_F(JpegLevels, AgreeOnEveryOddFile) {
  const auto files = TestDataFiles("images");
  if (files.empty()) GTEST_SKIP() << "no images: set FEEDWATER_TEST_DATA";
  std::mt19937 random(2);
  for (const auto& file : files) Compare(ReadFile(file), file.filename(), 4, random);
}

TEST_F(JpegLevels, AgreeOnGeneratedImagesOfEverySamplingSizeAndQuality) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int taken = 0;
  constexpr int kImages = 1500;
  for (int i = 0; i < kImages; ++i) {
    JpegOptions options;
    options.quality = 1 + upto(100);
    const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {1, 1}};
    const auto& sampling = samplings[upto(6)];
    options.luma_h = sampling[0];
    options.luma_v = sampling[1];
    options.gray = upto(5) == 0;
    options.restart_rows = upto(20) == 0;
    options.progressive = upto(20) == 0;
    const Size size =
        upto(20) == 0 ? Size{200 + upto(300), 200 + upto(300)} : Size{1 + upto(70), 1 + upto(70)};
    const Pixels pixels = NoisyImage(size, options.gray ? 1 : 3, random);
    taken += Compare(EncodeJpeg(pixels, options), absl::StrCat("image ", i), 4, random);
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, kImages / 2);
}

// Enlarged steps drive values out of the range that encoders stay in, up to where libjpeg-turbo's
// own paths differ.
TEST_F(JpegLevels, AgreeWhenQuantisationTablesAreEnlarged) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int taken = 0;
  for (int i = 0; i < 400; ++i) {
    JpegOptions options;
    options.quality = 1 + static_cast<int>(random() % 100);
    options.luma_h = options.luma_v = 1 + static_cast<int>(random() % 2);
    std::string encoded = EncodeJpeg(
        NoisyImage({8 + static_cast<int>(random() % 60), 8 + static_cast<int>(random() % 60)}, 3,
                   random),
        options);
    for (size_t at = 2; at + 4 < encoded.size();) {
      const auto byte = [&](size_t k) { return static_cast<uint8_t>(encoded[k]); };
      const size_t length = static_cast<size_t>(byte(at + 2)) << 8 | byte(at + 3);
      if (byte(at + 1) == 0xDA) break;
      for (size_t k = at + 5; byte(at + 1) == 0xDB && k < at + 2 + length; ++k) {
        if ((k - at - 4) % 65 == 0) continue;
        encoded[k] = static_cast<char>(
            std::min<unsigned>(255, byte(k) * (1 + random() % (i % 2 == 0 ? 3 : 40))));
      }
      at += 2 + length;
    }
    taken += Compare(encoded, absl::StrCat("image ", i), 4, random);
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(own_.counts().libjpeg[static_cast<int>(jpeg::Uncovered::kGuards)], 10u);
}

TEST_F(JpegLevels, GiveTheSameVerdictOnDamagedStreams) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 60; ++i) {
    JpegOptions options;
    options.quality = 30 + static_cast<int>(random() % 70);
    options.luma_h = 1 + static_cast<int>(random() % 2);
    options.luma_v = options.luma_h;
    options.gray = i % 7 == 0;
    const std::string whole =
        EncodeJpeg(NoisyImage({90, 70}, options.gray ? 1 : 3, random), options);
    for (int k = 0; k < 60; ++k) {
      std::string damaged = whole;
      if (k % 3 == 0) {
        damaged.resize(random() % damaged.size());
      } else {
        for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
          damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
      }
      const Outcome expected = Decode(AsBytes(damaged), {0, 0, 90, 70}, turbo_);
      (expected.status.ok() ? accepted : refused)++;
      EXPECT_TRUE(Decode(AsBytes(damaged), {0, 0, 90, 70}, own_) == expected) << expected.status;
      Compare(damaged, "damaged", 3, random);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

TEST_F(JpegLevels, AgreeOnEveryTarget) {
  std::mt19937 random(5);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (int i = 0; i < 40; ++i) {
      JpegOptions options;
      options.luma_h = 1 + i % 2;
      options.luma_v = 1 + i / 2 % 2;
      const Pixels pixels = NoisyImage({20 + i, 75 - i}, 3, random);
      EXPECT_TRUE(Compare(EncodeJpeg(pixels, options), hwy::TargetName(target), 4, random));
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST_F(JpegLevels, KeepTheOrientation) {
  const auto files = TestDataFiles("images");
  if (files.empty()) GTEST_SKIP() << "no images: set FEEDWATER_TEST_DATA";
  int turned = 0;
  for (const auto& file : files) {
    const std::string encoded = ReadFile(file);
    const auto info = ReadImageInfo(AsBytes(encoded), true, ImageLimits(), own_);
    if (!info.ok() || info->format != "jpeg") continue;
    const auto packed = PackCoefficients(AsBytes(encoded), ImageLimits(), packer_);
    if (packed.empty()) continue;
    const auto kept = ReadImageInfo(packed, true, ImageLimits(), own_);
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(kept->orientation, info->orientation) << file;
    EXPECT_EQ(kept->size, info->size) << file;
    turned += info->orientation > 1;
  }
  if (turned == 0) GTEST_SKIP() << "none of the images has an orientation";
}

}  // namespace
}  // namespace feedwater::server::testing
