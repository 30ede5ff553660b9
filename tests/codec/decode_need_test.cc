// What an image will take, from its header and its bytes: what grows with them and not with the
// pixels is counted, too.
#include "server/codec/decode_need.h"

#include <gtest/gtest.h>

#include "server/codec/image_writer.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "tests/codec/resources.h"
#include "tests/codec/test_images.h"
#include "tests/codec/whole_images.h"

namespace feedwater::server::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t NeedOf(const std::string& file) {
  const auto need = NeedOfDecoding({reinterpret_cast<const std::byte*>(file.data()), file.size()},
                                   /*apply_orientation=*/true, ImageLimits());
  EXPECT_TRUE(need.ok()) << need.status();
  return need.ok() ? need->bytes : 0;
}

TEST(DecodeNeed, AScanOfStuffedZeroesTakesFiveTimesItsBytes) {
  std::mt19937 random(1);
  std::string jpeg = EncodeJpeg(NoisyImage({16, 16}, 3, random), JpegOptions());
  const int64_t plain = NeedOf(jpeg);
  EXPECT_LT(plain, 2 * kMiB);
  jpeg.resize(jpeg.size() - 2);  // the end marker
  const int64_t pairs = 8 * kMiB;
  for (int64_t i = 0; i < pairs; ++i) jpeg.append("\xff\0", 2);
  EXPECT_GE(NeedOf(jpeg), 2 * pairs + 8 * pairs);
  jpeg.append(2 * pairs, 'x');  // what is not stuffed is copied once
  EXPECT_LT(NeedOf(jpeg), 4 * pairs + 8 * pairs + 2 * kMiB);
}

// Coefficients that the decode takes, too, are counted there.
TEST(DecodeNeed, PackingTakesTheCoefficientsOfWhatTheOwnDecoderDoesNotRead) {
  std::mt19937 random(1);
  const Size size{400, 300};
  const Pixels image = NoisyImage(size, 3, random);
  const int64_t coefficients = 3 * 50 * 38 * 128;
  JpegOptions options;
  const std::string baseline = EncodeJpeg(image, options);
  EXPECT_EQ(NeedOfPacking(AsBytes(baseline)).coefficient_bytes, 0);
  EXPECT_EQ(NeedOfPacking(AsBytes(baseline)).document_bytes,
            jpeg::MostStoreBytes(static_cast<int64_t>(baseline.size()), size));
  options.restart_mcus = 5;
  const PackingNeed restarts = NeedOfPacking(AsBytes(EncodeJpeg(image, options)));
  EXPECT_EQ(restarts.coefficient_bytes, coefficients);
  EXPECT_EQ(restarts.uncounted_bytes, coefficients);
  options.progressive = true;
  const std::string progressive = EncodeJpeg(image, options);
  EXPECT_EQ(NeedOfPacking(AsBytes(progressive)).coefficient_bytes, coefficients);
  EXPECT_EQ(NeedOfPacking(AsBytes(progressive)).uncounted_bytes, 0);
  EXPECT_GE(NeedOf(progressive), coefficients);
  const PackingNeed nothing = NeedOfPacking(AsBytes(std::string("no JPEG")));
  EXPECT_EQ(nothing.coefficient_bytes + nothing.document_bytes, 0);
}

// What libjpeg-turbo reads of a large file, and the document's growth, stay within that.
TEST(DecodeNeed, PackingTakesNoMore) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has memory of its own";
  std::mt19937 random(2);
  const Pixels image = NoisyImage({2000, 1500}, 3, random);
  ImageWorkspace workspace;
  for (const bool progressive : {false, true}) {
    JpegOptions options;
    options.progressive = progressive;
    options.restart_rows = 1;
    const std::string file = EncodeJpeg(image, options);
    const PackingNeed need = NeedOfPacking(AsBytes(file));
    const int64_t before = MemoryOf("VmRSS:");
    StartPeak();
    EXPECT_FALSE(PackCoefficients(AsBytes(file), ImageLimits(), workspace).empty());
    EXPECT_LE(MemoryOf("VmHWM:") - before,
              need.coefficient_bytes + 3 * need.document_bytes + 2 * kMiB);
  }
}

TEST(DecodeNeed, IndicesTakeAByteOfAPixelAndNotThree) {
  const std::string png = MakePng(4000, 3000, 8, 0, "");
  const int64_t pixels = 4000 * 3000;
  const auto need = NeedOfDecoding(AsBytes(png), false, ImageLimits(), PixelValues::kIndices);
  ASSERT_TRUE(need.ok()) << need.status();
  EXPECT_GE(need->bytes, pixels);
  EXPECT_LE(need->bytes, NeedOf(png) - 2 * pixels);
  EXPECT_TRUE(absl::IsInvalidArgument(
      NeedOfDecoding(AsBytes(MakePng(2, 2, 16, 0, "")), false, ImageLimits(), PixelValues::kIndices)
          .status()));
}

TEST(DecodeNeed, ATiffsListsAreCounted) {
  auto entries = TiffOf(1, 1, {8}, 1, 1);
  const int64_t plain = NeedOf(MakeTiff("a", entries));
  entries.push_back({40000, 4, std::vector<uint64_t>(1 << 20, 1)});
  EXPECT_GE(NeedOf(MakeTiff("a", entries)), plain + 4 * 4 * kMiB);
}

TEST(DecodeNeed, NoLibraryMeetsTheFile) {
  // Their first bytes are an image's, and nothing behind them is: a library would say so.
  const std::string rest(64, '\xaa');
  const std::string png = MakePng(5, 4, 8, 2, "").substr(0, 29) + rest;  // IHDR without its CRC
  auto webp = std::string("RIFF") + Number(64, 4) + "WEBPVP8X" + Number(10, 4) + Number(0, 4) +
              Number(4, 3) + Number(3, 3) + rest;
  auto entries = TiffOf(5, 4, {8}, 1, 20);
  entries[3].values = {50000};  // no compression that there is
  for (const std::string& file : {png, webp, MakeTiff("a", entries)}) {
    const auto need = NeedOfDecoding({reinterpret_cast<const std::byte*>(file.data()), file.size()},
                                     /*apply_orientation=*/false, ImageLimits());
    ASSERT_TRUE(need.ok()) << need.status();
    EXPECT_EQ(need->size, (Size{5, 4}));
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeWhole(file).status));
  }
}

TEST(DecodeNeed, LosslessWebpHasTablesOfCodes) {
  const std::string rows(8 * 8 * 3, '\0');
  std::string webp =
      WritePicture({reinterpret_cast<const uint8_t*>(rows.data()), {8, 8}, 3}, ".webp").value();
  EXPECT_LT(NeedOf(webp), 2 * kMiB);
  ASSERT_EQ(webp.substr(12, 4), "VP8L");
  // 1024x1024 in the header, and bytes for as many groups of codes as there can be.
  webp.replace(21, 4, Number(1023 | 1023 << 14, 4));
  webp.append(300'000, '\1');
  webp.replace(4, 4, Number(static_cast<uint32_t>(webp.size() - 8), 4));
  webp.replace(16, 4, Number(static_cast<uint32_t>(webp.size() - 20), 4));
  EXPECT_GE(NeedOf(webp), 30 * kMiB);
}

}  // namespace
}  // namespace feedwater::server::testing
