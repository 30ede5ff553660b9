// Every way to decode a JPEG (jpeg_levels.h) gives the
// same pixels for the same region, and a damaged stream the same verdict.
//
// $FEEDWATER_JPEG_IMAGES: how many generated images are compared, 1,500 unless set. From 10,000 on
// every photo is compared with every SIMD target too, instead of with the best and one other by
// turns.
#include "tests/codec/jpeg_levels.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "hwy/targets.h"
#include "server/codec/jpeg/frame.h"
#include "tests/codec/test_images.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server::testing {
namespace {

int GeneratedImages() {
  const char* text = std::getenv("FEEDWATER_JPEG_IMAGES");
  return text != nullptr && std::atoi(text) > 0 ? std::atoi(text) : 1'500;
}
constexpr int kManyImages = 10'000;

class JpegLevelsTest : public ::testing::Test {
 protected:
  // Compares all levels on some regions with the best target. Returns whether the own decoder took
  // the image.
  bool Compare(const std::string& encoded, const std::string& name, int regions,
               std::mt19937& random) {
    const int before = levels_.by_own;
    const std::string difference = levels_.Compare(encoded, regions, random);
    EXPECT_EQ(difference, "") << name;
    return levels_.by_own > before;
  }

  // The same with the targets whose number `wanted` takes.
  bool CompareOnTargets(const std::string& encoded, const std::string& name, int regions,
                        std::mt19937& random, const std::function<bool(size_t)>& wanted) {
    bool taken = false;
    size_t number = 0;
    ForEachTarget([&](int64_t) {
      if (wanted(number++)) taken = Compare(encoded, name, regions, random);
      return !HasFailure();
    });
    return taken;
  }

  void Report() const {
    std::string targets;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets())
      absl::StrAppend(&targets, " ", hwy::TargetName(target));
    std::printf(
        "%d images times targets, %d crops, %d decoded smaller, %d by the own decoder, %d with a "
        "whole seek index, "
        "%d from coefficients; targets:%s\n",
        levels_.images, levels_.crops, levels_.scaled_crops, levels_.by_own, levels_.by_index,
        levels_.by_store, targets.c_str());
  }

  JpegLevels levels_;
  const size_t targets_ = hwy::SupportedAndGeneratedTargets().size();
};

TEST_F(JpegLevelsTest, AgreeOnEveryPhoto) {
  const auto files = TestDataFiles("photos");
  if (files.empty()) GTEST_SKIP() << "no photos: set FEEDWATER_TEST_DATA";
  std::mt19937 random(1);
  const bool every = GeneratedImages() >= kManyImages;
  int taken = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    taken += CompareOnTargets(
        ReadFile(files[i]), files[i].filename(), 4, random,
        [&](size_t target) { return every || target == 0 || target == 1 + i % (targets_ - 1); });
    if (HasFailure()) return;
  }
  Report();
  EXPECT_GT(taken, static_cast<int>(files.size()) * 95 / 100);
  EXPECT_GT(levels_.by_store, levels_.images * 95 / 100);
  EXPECT_GT(levels_.by_index, levels_.images * 95 / 100);
  EXPECT_GT(levels_.growing_counts().with_seek_index,
            static_cast<uint64_t>(levels_.images) * 2 * 95 / 100);
}

TEST_F(JpegLevelsTest, AgreeOnEveryOddFile) {
  const auto files = TestDataFiles("images");
  if (files.empty()) GTEST_SKIP() << "no images: set FEEDWATER_TEST_DATA";
  std::mt19937 random(2);
  for (const auto& file : files) {
    CompareOnTargets(ReadFile(file), file.filename(), 4, random, [](size_t) { return true; });
  }
  Report();
}

// Steps beyond what encoders choose drive values out of the range that they stay in, up to where
// libjpeg-turbo's own paths differ.
void EnlargeSteps(std::string* encoded, unsigned most, std::mt19937& random) {
  for (size_t at = 2; at + 4 < encoded->size();) {
    const auto byte = [&](size_t k) { return static_cast<uint8_t>((*encoded)[k]); };
    const size_t length = static_cast<size_t>(byte(at + 2)) << 8 | byte(at + 3);
    if (byte(at + 1) == 0xDA) break;
    for (size_t k = at + 5; byte(at + 1) == 0xDB && k < at + 2 + length; ++k) {
      if ((k - at - 4) % 65 == 0) continue;
      (*encoded)[k] = static_cast<char>(std::min<unsigned>(255, byte(k) * (1 + random() % most)));
    }
    at += 2 + length;
  }
}

TEST_F(JpegLevelsTest, AgreeOnGeneratedImagesOfEverySamplingSizeAndQuality) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int images = GeneratedImages();
  int taken = 0;
  for (int i = 0; i < images; ++i) {
    JpegOptions options;
    options.quality = 1 + upto(100);
    const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {1, 1}};
    const auto& sampling = samplings[upto(6)];
    options.luma_h = sampling[0];
    options.luma_v = sampling[1];
    options.gray = upto(5) == 0;
    options.optimised = upto(2) == 0;
    options.restart_rows = upto(20) == 0;
    options.progressive = upto(20) == 0;
    const Size size = upto(40) == 0 ? Size{201 + 2 * upto(200), 201 + 2 * upto(200)}
                                    : Size{1 + upto(70), 1 + upto(70)};
    const Pixels pixels = NoisyImage(size, options.gray ? 1 : 3, random);
    std::string encoded = EncodeJpeg(pixels, options);
    if (upto(8) == 0) EnlargeSteps(&encoded, i % 2 == 0 ? 3 : 40, random);
    taken += CompareOnTargets(encoded, absl::StrCat("image ", i), 3, random,
                              [](size_t) { return true; });
    if (HasFailure()) return;
  }
  Report();
  EXPECT_GT(taken, images / 2);
  EXPECT_GT(levels_.own_counts().libjpeg[static_cast<int>(jpeg::Uncovered::kGuards)], 0u);
}

TEST_F(JpegLevelsTest, AgreeWhenQuantisationTablesAreEnlarged) {
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
    EnlargeSteps(&encoded, i % 2 == 0 ? 3 : 40, random);
    taken += Compare(encoded, absl::StrCat("image ", i), 4, random);
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(levels_.own_counts().libjpeg[static_cast<int>(jpeg::Uncovered::kGuards)], 10u);
}

TEST_F(JpegLevelsTest, GiveTheSameVerdictOnDamagedStreams) {
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
      levels_.verdict.status = absl::DataLossError("no header");
      Compare(damaged, "damaged", 1, random);
      (levels_.verdict.status.ok() ? accepted : refused)++;
      Compare(damaged, "damaged", 3, random);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

TEST_F(JpegLevelsTest, KeepTheOrientation) {
  const auto files = TestDataFiles("images");
  if (files.empty()) GTEST_SKIP() << "no images: set FEEDWATER_TEST_DATA";
  ImageWorkspace workspace, packer;
  int turned = 0;
  for (const auto& file : files) {
    const std::string encoded = ReadFile(file);
    const auto info = ReadImageInfo(AsBytes(encoded), true, ImageLimits(), workspace);
    if (!info.ok() || info->format != "jpeg") continue;
    const auto packed = PackCoefficients(AsBytes(encoded), ImageLimits(), packer);
    if (packed.empty()) continue;
    const auto kept = ReadImageInfo(packed, true, ImageLimits(), workspace);
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(kept->orientation, info->orientation) << file;
    EXPECT_EQ(kept->size, info->size) << file;
    turned += info->orientation > 1;
  }
  if (turned == 0) GTEST_SKIP() << "none of the images has an orientation";
}

}  // namespace
}  // namespace feedwater::server::testing
