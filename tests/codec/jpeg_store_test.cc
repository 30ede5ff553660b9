// The coefficient store: what is packed comes back, its pixels are those of libjpeg-turbo's whole
// decode, and damaged documents do no harm.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/store_decoder.h"
#include "server/codec/jpeg/store_kernels.h"
#include "tests/codec/coefficient_images.h"
#include "tests/codec/test_images.h"

namespace feedwater::server::jpeg {
namespace {

using testing::CoefficientImage;
using testing::Pixels;

void ForEachTarget(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
    if (::testing::Test::HasFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
}

// In the order of the file, row of MCUs by row of MCUs. Empty where refused.
std::vector<uint8_t> Pack(const CoefficientImage& image, StorePacker& packer) {
  if (!packer.Start(image.shape, image.quant)) return {};
  for (int mcu_row = 0; mcu_row * image.shape.v[0] < image.shape.blocks_high(0); ++mcu_row) {
    for (int c = 0; c < image.shape.components; ++c) {
      for (int i = 0; i < image.shape.v[c]; ++i) {
        const int row = mcu_row * image.shape.v[c] + i;
        if (row < image.shape.blocks_high(c) && !packer.AddRow(c, image.Row(c, row))) return {};
      }
    }
  }
  const auto document = packer.Finish();
  return {document.begin(), document.end()};
}

void ExpectCoefficients(const std::vector<uint8_t>& document, const CoefficientImage& image,
                        std::mt19937& random) {
  ASSERT_TRUE(VerifyStore(document).ok()) << VerifyStore(document);
  const auto view = StoreView::Open(document);
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_EQ(view->shape(), image.shape);
  for (int c = 0; c < image.shape.components; ++c) {
    ASSERT_TRUE(std::equal(image.quant[c], image.quant[c] + 64, view->quant(c)));
    const int wide = image.shape.blocks_wide(c);
    for (int row = 0; row < image.shape.blocks_high(c); ++row) {
      const int column = static_cast<int>(random() % wide);
      const int count = 1 + static_cast<int>(random() % (wide - column));
      std::vector<int16_t> unpacked(64 * count);
      ASSERT_TRUE(view->UnpackRow(c, row, column, count, unpacked.data()));
      ASSERT_TRUE(std::equal(unpacked.begin(), unpacked.end(), image.Row(c, row) + 64 * column))
          << "component " << c << ", row " << row << ", from block " << column;
    }
  }
}

void ExpectRegion(const std::vector<uint8_t>& document, const Pixels& whole, const Rect& region,
                  StoreDecoder& decoder, std::mt19937& random, int scale = 1) {
  SCOPED_TRACE(::testing::Message() << "region " << region.x << "," << region.y << " "
                                    << region.width << "x" << region.height << " at 1/" << scale);
  ASSERT_TRUE(decoder.Open(document).ok());
  ASSERT_EQ(ScaledSize(decoder.size(), scale), whole.size);
  ASSERT_TRUE(decoder.Start(region, scale).ok());
  const uint8_t* rows[RowSource::kMaxRows];
  for (int y = 0; y < region.height;) {
    const int count = std::min<int>(1 + random() % RowSource::kMaxRows, region.height - y);
    ASSERT_TRUE(decoder.Read(count, rows).ok());
    for (int i = 0; i < count; ++i, ++y) {
      ASSERT_TRUE(std::equal(rows[i], rows[i] + 3 * region.width, whole.at(region.x, region.y + y)))
          << "row " << y;
    }
  }
}

// Whole decode by libjpeg-turbo, then the store's, cut at random; at full size and at a smaller
// one.
void ExpectSameAsWholeDecode(const std::string& encoded, const CoefficientImage& image, int regions,
                             uint32_t seed) {
  Pixels whole, scaled[4];
  long warnings = 0;
  testing::PlainDecoder plain;
  ASSERT_TRUE(plain.Decode(encoded, &whole, &warnings));
  for (int i = 1; i < 4; ++i) ASSERT_TRUE(plain.Decode(encoded, &scaled[i], &warnings, 1 << i));
  ForEachTarget([&] {
    std::mt19937 random(seed);
    StorePacker packer;
    StoreDecoder decoder;
    const std::vector<uint8_t> document = Pack(image, packer);
    ASSERT_FALSE(document.empty());
    ExpectCoefficients(document, image, random);
    ExpectRegion(document, whole, {0, 0, whole.size.width, whole.size.height}, decoder, random);
    for (int i = 0; i < regions; ++i) {
      ExpectRegion(document, whole, testing::RandomRect(whole.size, random), decoder, random);
    }
    for (int i = 1; i < 4; ++i) {
      const Size size = scaled[i].size;
      const Rect region = random() % 4 == 0 ? Rect{0, 0, size.width, size.height}
                                            : testing::RandomRect(size, random);
      ExpectRegion(document, scaled[i], region, decoder, random, 1 << i);
    }
  });
}

TEST(JpegStore, GivesTheWholeDecodeOfEveryPhotoCropped) {
  const auto files = testing::TestDataFiles("photos");
  if (files.empty()) GTEST_SKIP() << "no photos in FEEDWATER_TEST_DATA";
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  int compared = 0;
  size_t jpeg_bytes = 0, store_bytes = 0;
  for (const auto& path : files) {
    SCOPED_TRACE(path.string());
    const std::string encoded = testing::ReadFile(path);
    CoefficientImage image;
    testing::CoefficientReader reader;
    if (!reader.Read(encoded, &image)) continue;
    ExpectSameAsWholeDecode(encoded, image, 2, seed + compared);
    if (HasFailure()) return;
    StorePacker packer;
    store_bytes += Pack(image, packer).size();
    jpeg_bytes += encoded.size();
    ++compared;
  }
  EXPECT_GT(compared, 300);
  EXPECT_LE(static_cast<double>(store_bytes), 1.45 * static_cast<double>(jpeg_bytes));
  RecordProperty("store_bytes_per_jpeg_byte", std::to_string(double(store_bytes) / jpeg_bytes));
}

TEST(JpegStore, GivesTheWholeDecodeOfGeneratedImagesCropped) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int compared = 0;
  for (int round = 0; round < 600; ++round) {
    testing::JpegOptions options;
    options.quality = 1 + static_cast<int>(random() % 100);
    const int sampling = static_cast<int>(random() % 5);
    options.luma_h = sampling == 1 || sampling == 2 ? 2 : 1;
    options.luma_v = sampling == 2 || sampling == 3 ? 2 : 1;
    const Size size = {1 + static_cast<int>(random() % (round % 20 == 0 ? 700 : 70)),
                       1 + static_cast<int>(random() % (round % 20 == 0 ? 300 : 70))};
    const std::string encoded =
        testing::EncodeJpeg(testing::NoisyImage(size, sampling == 4 ? 1 : 3, random), options);
    CoefficientImage image;
    testing::CoefficientReader reader;
    if (!reader.Read(encoded, &image)) continue;  // halved to two samples or less
    SCOPED_TRACE(::testing::Message() << size.width << "x" << size.height << " quality "
                                      << options.quality << " sampling " << sampling);
    ExpectSameAsWholeDecode(encoded, image, 4, seed + round);
    if (HasFailure()) return;
    ++compared;
  }
  EXPECT_GT(compared, 500);
}

// Any int16, so that every class, code and exception occurs; steps of 1 and few coefficients keep
// within the guards.
TEST(JpegStore, GivesBackCoefficientsOfAnyMagnitude) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ForEachTarget([&] {
    std::mt19937 random(seed);
    StorePacker packer;
    int packed = 0;
    for (int round = 0; round < 300; ++round) {
      CoefficientImage image;
      image.shape.components = 1;
      image.shape.size = {1 + static_cast<int>(random() % 900), 1 + static_cast<int>(random() % 9)};
      std::fill_n(image.quant[0], 64, uint16_t{1});
      image.coefficients[0].resize(64 * image.shape.blocks_wide(0) * image.shape.blocks_high(0));
      for (size_t b = 0; b < image.coefficients[0].size(); b += 64) {
        const int limit = 1 << (random() % 11), count = static_cast<int>(random() % 20);
        for (int i = 0; i < count; ++i) {
          image.coefficients[0][b + random() % 64] =
              static_cast<int16_t>(static_cast<int>(random() % (2 * limit + 1)) - limit) /
              (count < 4 ? 1 : 4);
        }
      }
      const std::vector<uint8_t> document = Pack(image, packer);
      if (document.empty()) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectCoefficients(document, image, random));
      ++packed;
    }
    EXPECT_GT(packed, 100);
  });
}

TEST(JpegStore, AllTargetsWriteTheSameDocument) {
  std::mt19937 random(5);
  const std::string encoded =
      testing::EncodeJpeg(testing::NoisyImage({333, 222}, 3, random), testing::JpegOptions());
  CoefficientImage image;
  testing::CoefficientReader reader;
  ASSERT_TRUE(reader.Read(encoded, &image));
  StorePacker packer;
  const std::vector<uint8_t> expected = Pack(image, packer);
  ForEachTarget([&] { EXPECT_EQ(Pack(image, packer), expected); });
}

TEST(JpegStore, ImagesBeyondTheGuardsAreNotPacked) {
  CoefficientImage image;
  image.shape.components = 1;
  image.shape.size = {80, 8};
  std::fill_n(image.quant[0], 64, uint16_t{255});
  image.coefficients[0].resize(64 * 10);
  StorePacker packer;
  EXPECT_FALSE(Pack(image, packer).empty());
  image.coefficients[0][64 * 9] = 16;
  EXPECT_FALSE(Pack(image, packer).empty());
  image.coefficients[0][64 * 9] = 17;
  EXPECT_TRUE(Pack(image, packer).empty());
  image.coefficients[0][64 * 9] = 0;
  image.quant[0][5] = 256;
  EXPECT_FALSE(packer.Start(image.shape, image.quant));
  image.quant[0][5] = 0;
  EXPECT_FALSE(packer.Start(image.shape, image.quant));
}

// A file of few bytes may stand for a document of many: a coefficient of ten bits takes the eight
// bytes of its whole group here.
TEST(JpegStore, DocumentsThatOutgrowTheirFileAreRefused) {
  CoefficientImage image;
  image.shape.components = 1;
  image.shape.size = {800, 800};
  std::fill_n(image.quant[0], 64, uint16_t{1});
  image.coefficients[0].resize(64 * 100 * 100);
  for (size_t at = 0; at < image.coefficients[0].size(); at += 16)
    image.coefficients[0][at + 9] = image.coefficients[0][at + 13] = 100;
  StorePacker packer;
  const auto document_bytes = static_cast<int64_t>(Pack(image, packer).size());
  EXPECT_GT(document_bytes, 100 * 100 * 64);
  const auto pack = [&](int64_t most_bytes) {
    if (!packer.Start(image.shape, image.quant, 1, most_bytes)) return false;
    for (int row = 0; row < 100; ++row) {
      if (!packer.AddRow(0, image.Row(0, row))) return false;
    }
    return !packer.Finish().empty();
  };
  EXPECT_TRUE(pack(document_bytes));
  EXPECT_FALSE(pack(document_bytes - 100));
  ImageWorkspace workspace;
  for (const bool progressive : {false, true}) {
    const std::string encoded = EncodeCoefficients(image, [&](jpeg_compress_struct& jpeg) {
      if (progressive) jpeg_simple_progression(&jpeg);
    });
    EXPECT_GT(document_bytes, MostStoreBytes(static_cast<int64_t>(encoded.size()), {800, 800}));
    EXPECT_TRUE(PackCoefficients(testing::AsBytes(encoded), ImageLimits(), workspace).empty());
  }
}

TEST(JpegStore, AnImageWithRowsMissingIsNoDocument) {
  CoefficientImage image;
  image.shape.components = 1;
  image.shape.size = {16, 16};
  std::fill_n(image.quant[0], 64, uint16_t{1});
  image.coefficients[0].resize(64 * 4);
  StorePacker packer;
  ASSERT_TRUE(packer.Start(image.shape, image.quant));
  ASSERT_TRUE(packer.AddRow(0, image.Row(0, 0)));
  EXPECT_TRUE(packer.Finish().empty());
}

// Bytes as a bad disk or a hostile neighbour would leave them: the checksum finds every flip, and
// decoding without looking at it stays within the document (run with AddressSanitizer to see).
TEST(JpegStore, DamagedDocumentsAreFoundAndDoNoHarm) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  testing::JpegOptions options;
  options.quality = 97;
  options.luma_h = options.luma_v = 2;
  const std::string encoded =
      testing::EncodeJpeg(testing::NoisyImage({150, 75}, 3, random), options);
  CoefficientImage image;
  testing::CoefficientReader reader;
  ASSERT_TRUE(reader.Read(encoded, &image));
  StorePacker packer;
  const std::vector<uint8_t> document = Pack(image, packer);
  ForEachTarget([&] {
    StoreDecoder decoder;
    int opened = 0, refused = 0;
    for (int round = 0; round < 4000; ++round) {
      std::vector<uint8_t> damaged = document;
      const size_t reach = round % 3 == 0 ? 600 : damaged.size();
      for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
        damaged[random() % reach] = random() % 2 == 0 ? 0xFF : static_cast<uint8_t>(random());
      }
      if (round % 10 == 0) damaged.resize(random() % damaged.size());
      damaged.shrink_to_fit();
      EXPECT_EQ(VerifyStore(damaged).ok(), damaged == document);
      if (!decoder.Open(damaged).ok()) {
        ++refused;
        continue;
      }
      ++opened;
      const Size size = decoder.size();
      if (static_cast<int64_t>(size.width) * size.height > 4'000'000) continue;
      const int scale = 1 << random() % 4;
      ASSERT_TRUE(decoder.Start(testing::RandomRect(ScaledSize(size, scale), random), scale).ok());
      const uint8_t* rows[RowSource::kMaxRows];
      (void)decoder.Read(1, rows);
    }
    EXPECT_GT(opened, 100);
    EXPECT_GT(refused, 100);
  });
}

TEST(JpegStore, EveryCutIsRefused) {
  std::mt19937 random(9);
  const std::string encoded =
      testing::EncodeJpeg(testing::NoisyImage({40, 30}, 3, random), testing::JpegOptions());
  CoefficientImage image;
  testing::CoefficientReader reader;
  ASSERT_TRUE(reader.Read(encoded, &image));
  StorePacker packer;
  const std::vector<uint8_t> document = Pack(image, packer);
  for (size_t bytes = 0; bytes < document.size(); ++bytes) {
    const std::vector<uint8_t> cut(document.begin(), document.begin() + bytes);
    EXPECT_FALSE(StoreView::Open(cut).ok()) << bytes;
  }
}

}  // namespace
}  // namespace feedwater::server::jpeg
