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
#include "tests/codec/coefficient_images.h"
#include "tests/codec/test_images.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server::testing {
namespace {

int GeneratedImages() {
  const char* text = std::getenv("FEEDWATER_JPEG_IMAGES");
  return text != nullptr && std::atoi(text) > 0 ? std::atoi(text) : 1'500;
}
constexpr int kManyImages = 10'000;

// The same coefficients written in another way. False for what is no such photo.
bool Rewrite(std::string* encoded, const std::function<void(jpeg_compress_struct&)>& arrange) {
  CoefficientImage image;
  CoefficientReader reader;
  if (!reader.Read(*encoded, &image) || image.shape.components != 3) return false;
  *encoded = EncodeCoefficients(image, arrange);
  return true;
}

// Where the first scan's header begins.
size_t ScanOf(const std::string& encoded) {
  size_t at = 2;
  while (static_cast<uint8_t>(encoded[at + 1]) != 0xDA) {
    at += 2 + (static_cast<size_t>(static_cast<uint8_t>(encoded[at + 2])) << 8 |
               static_cast<uint8_t>(encoded[at + 3]));
  }
  return at;
}

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

// Progressive files by scripts of all kinds, restart intervals, scans of one component: what only
// libjpeg-turbo reads, and what comes from coefficients all the same.
JpegOptions OtherThanBaseline(std::mt19937& random) {
  JpegOptions options;
  options.quality = 1 + static_cast<int>(random() % 100);
  const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}};
  const auto& sampling = samplings[random() % 4];
  options.gray = random() % 5 == 0;
  options.luma_h = options.gray ? 1 + static_cast<int>(random() % 2) : sampling[0];
  options.luma_v = options.gray ? 1 + static_cast<int>(random() % 2) : sampling[1];
  switch (random() % 4) {
    case 0:
      options.progressive = true;
      break;
    case 1:
      options.scans = RandomScript(options.gray ? 1 : 3, random);
      break;
    case 2:
      options.interleaved = options.gray;
      break;
    default:
      break;
  }
  const bool is_baseline = !options.progressive && options.scans.empty() && options.interleaved;
  if (is_baseline || random() % 4 == 0) {
    options.restart_rows = static_cast<int>(random() % 3);
    if (options.restart_rows == 0) options.restart_mcus = 1 + random() % 7;
  }
  options.optimised = random() % 2 == 0;
  return options;
}

TEST_F(JpegLevelsTest, AgreeOnWhatIsNotBaseline) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const int images = GeneratedImages() / 3;
  for (int i = 0; i < images; ++i) {
    const JpegOptions options = OtherThanBaseline(random);
    const int most = i % 20 == 0 ? 400 : 90;
    const Size size{5 + static_cast<int>(random() % most), 1 + static_cast<int>(random() % most)};
    std::string encoded = EncodeJpeg(NoisyImage(size, options.gray ? 1 : 3, random), options);
    if (random() % 10 == 0) EnlargeSteps(&encoded, 3, random);
    CompareOnTargets(encoded, absl::StrCat("image ", i), 4, random, [&](size_t target) {
      return target == 0 || target == 1 + i % (targets_ - 1);
    });
    if (HasFailure()) return;
  }
  Report();
  EXPECT_EQ(levels_.by_own, 0);
  EXPECT_GT(levels_.by_store, levels_.images * 85 / 100);
}

// The photos as a program writes them that makes progressive files, and one that restarts.
TEST_F(JpegLevelsTest, AgreeOnEveryPhotoMadeProgressive) {
  const auto files = TestDataFiles("photos");
  if (files.empty()) GTEST_SKIP() << "no photos: set FEEDWATER_TEST_DATA";
  std::mt19937 random(3);
  const size_t step = GeneratedImages() >= kManyImages ? 1 : 4;
  int photos = 0;
  for (size_t i = 0; i < files.size(); i += step) {
    std::string encoded = ReadFile(files[i]);
    const std::vector<jpeg_scan_info> script = RandomScript(3, random);
    const auto arrange = [&](jpeg_compress_struct& jpeg) {
      if (i / step % 3 == 0) return jpeg_simple_progression(&jpeg);
      if (i / step % 3 == 1) {
        jpeg.restart_interval = 9;
        return;
      }
      jpeg.scan_info = script.data();
      jpeg.num_scans = static_cast<int>(script.size());
    };
    if (!Rewrite(&encoded, arrange)) continue;
    Compare(encoded, files[i].filename(), 3, random);
    if (HasFailure()) return;
    ++photos;
  }
  Report();
  EXPECT_GT(photos, static_cast<int>(files.size() / step) * 90 / 100);
  EXPECT_EQ(levels_.by_own, 0);
  EXPECT_GT(levels_.by_store, photos * 95 / 100);
}

// Damage of what only libjpeg-turbo reads: where there is a document, it gives the verdict and the
// pixels of the file; and of a file that ends early there is none.
TEST_F(JpegLevelsTest, GiveTheSameVerdictOnDamageThatOnlyLibjpegReads) {
  const uint32_t seed = ::feedwater::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ImageWorkspace packer;
  int refused = 0, accepted = 0;
  for (int i = 0; i < 60; ++i) {
    const JpegOptions options = OtherThanBaseline(random);
    const std::string whole =
        EncodeJpeg(NoisyImage({90, 70}, options.gray ? 1 : 3, random), options);
    for (int k = 0; k < 60; ++k) {
      std::string damaged = whole;
      if (k % 3 == 0) {
        damaged.resize(random() % (damaged.size() - 2));
        EXPECT_TRUE(PackCoefficients(AsBytes(damaged), ImageLimits(), packer).empty());
        if (k % 2 == 0) damaged += "\xFF\xD9";
      } else {
        for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
          damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
      }
      levels_.verdict.status = absl::DataLossError("no header");
      Compare(damaged, "damaged", 3, random);
      (levels_.verdict.status.ok() ? accepted : refused)++;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

// Good files whose pixels are not those of their coefficients: libjpeg-turbo smooths what a
// progressive file leaves out, and reads one scan of a file that has all components in its first.
TEST_F(JpegLevelsTest, AgreeWhereADecodeDoesNotShowTheCoefficients) {
  std::mt19937 random(6);
  ImageWorkspace packer;
  const auto is_packed = [&](const std::string& encoded) {
    return !PackCoefficients(AsBytes(encoded), ImageLimits(), packer).empty();
  };
  const Pixels image = NoisyImage({120, 90}, 3, random);
  JpegOptions options;
  options.luma_h = options.luma_v = 2;
  for (int i = 0; i < 40; ++i) {
    options.scans = RandomScript(3, random);
    const std::string all = EncodeJpeg(image, options);
    EXPECT_TRUE(is_packed(all));
    options.scans.resize(3 + random() % (options.scans.size() - 3));
    const std::string less = EncodeJpeg(image, options);
    EXPECT_FALSE(is_packed(less));
    levels_.verdict.status = absl::DataLossError("no header");
    Compare(less, "incomplete", 3, random);
    EXPECT_TRUE(levels_.verdict.status.ok()) << levels_.verdict.status;
  }
  options.scans.clear();
  for (const unsigned restart_mcus : {0, 4}) {
    options.restart_mcus = restart_mcus;
    const std::string first = EncodeJpeg(image, options),
                      second = EncodeJpeg(NoisyImage({120, 90}, 3, random), options);
    const std::string both = first.substr(0, first.size() - 2) + second.substr(ScanOf(second));
    EXPECT_EQ(is_packed(both), restart_mcus == 0) << "the own decoder reads the first scan, too";
    Compare(both, "two images", 3, random);
  }
}

TEST_F(JpegLevelsTest, PackWithinTheLimits) {
  std::mt19937 random(5);
  ImageWorkspace packer;
  JpegOptions options;
  options.progressive = true;
  const std::string encoded = EncodeJpeg(NoisyImage({64, 48}, 3, random), options);
  const auto is_packed = [&](const ImageLimits& limits) {
    return !PackCoefficients(AsBytes(encoded), limits, packer).empty();
  };
  ImageLimits limits;
  EXPECT_TRUE(is_packed(limits));
  limits.max_scans = 9;
  EXPECT_FALSE(is_packed(limits)) << "of ten scans";
  limits = ImageLimits();
  limits.max_pixels = 64 * 48 - 1;
  EXPECT_FALSE(is_packed(limits));
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
