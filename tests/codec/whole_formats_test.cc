// PNG, BMP, WebP, PNM and TIFF, in all the kinds that they come in: the pixels are those that the
// file means. Method: files written by hand beside the pixels worked out by hand, and files that
// WritePicture writes. `codec/README.md` says where other programs read other pixels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "server/codec/image_writer.h"
#include "tests/codec/whole_images.h"

namespace feedwater::server::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<uint8_t> Decoded(const std::string& file) {
  const WholeImage image = DecodeWhole(file);
  EXPECT_TRUE(image.status.ok()) << image.status;
  return image.rgb;
}
std::string Refused(const std::string& file) {
  const WholeImage image = DecodeWhole(file);
  EXPECT_TRUE(absl::IsInvalidArgument(image.status)) << image.status;
  return std::string(image.status.message());
}

std::string Bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}

std::vector<uint8_t> AsRgb(const Pixels& pixels) {
  std::vector<uint8_t> rgb;
  for (size_t i = 0; i < pixels.bytes.size(); i += pixels.channels) {
    for (int c = 0; c < 3; ++c) rgb.push_back(pixels.bytes[i + (pixels.channels == 1 ? 0 : c)]);
  }
  return rgb;
}

TEST(WholeFormats, WhatIsWrittenIsRead) {
  std::mt19937 random(3);
  for (const Size size : {Size{23, 17}, Size{1, 1}, Size{300, 2}, Size{5, 400}}) {
    for (const int channels : {1, 3, 4}) {
      Pixels pixels = NoisyImage(size, channels, random);
      for (const char* kind : {".png", ".bmp", ".webp", ".tiff", ".ppm", ".pgm"}) {
        SCOPED_TRACE(absl::StrCat(kind, " ", channels, " ", size.width, "x", size.height));
        if (channels ==
            4) {  // alpha is multiplied in by libtiff; where it is 0, WebP keeps no colour
          for (size_t i = 3; i < pixels.bytes.size(); i += 4) pixels.bytes[i] = 255;
        }
        const auto file = WritePicture({pixels.bytes.data(), size, channels}, kind);
        if (!file.ok()) continue;
        const WholeImage image = DecodeWhole(*file);
        EXPECT_TRUE(image.status.ok()) << image.status;
        EXPECT_EQ(image.size, size);
        EXPECT_TRUE(image.rgb == AsRgb(pixels));
        const WholeImage cut = DecodeWhole(file->substr(0, file->size() * 3 / 4));
        EXPECT_TRUE(absl::IsInvalidArgument(cut.status)) << cut.status;
      }
    }
  }
}

TEST(WholeFormats, WhatIsNotDecodedIsNamed) {
  EXPECT_THAT(Refused("GIF89a......"), HasSubstr("unsupported GIF image; convert it to one of"));
  EXPECT_THAT(Refused(std::string("\0\0\0\x0CjP  \r\n", 10)), HasSubstr("JPEG 2000"));
  EXPECT_THAT(Refused(std::string("\0\0\0\x18"
                                  "ftypavif",
                                  12)),
              HasSubstr("AVIF"));
  EXPECT_THAT(Refused("no picture"), HasSubstr("not an image of a known format (JPEG, PNG"));
}

// --- PNG

TEST(WholePng, SixteenBitsKeepTheHighByteAndAlphaIsDropped) {
  EXPECT_THAT(Decoded(MakePng(1, 1, 16, 2, Bytes({0, 1, 255, 2, 128, 3, 0}))),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Decoded(MakePng(1, 1, 16, 4, Bytes({0, 9, 200, 0, 0}))), ElementsAre(9, 9, 9));
  EXPECT_THAT(Decoded(MakePng(1, 1, 8, 6, Bytes({0, 7, 8, 9, 0}))), ElementsAre(7, 8, 9));
}

TEST(WholePng, PalettesAndFewBitsAreSpread) {
  const std::string palette = PngChunk("PLTE", Bytes({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const std::string alpha = PngChunk("tRNS", Bytes({0, 128}));
  EXPECT_THAT(Decoded(MakePng(3, 1, 2, 3, Bytes({0, 0x18}), palette + alpha)),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(Decoded(MakePng(2, 1, 1, 0, Bytes({0, 0x40}))), ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(Decoded(MakePng(2, 1, 4, 0, Bytes({0, 0x1F}))),
              ElementsAre(17, 17, 17, 255, 255, 255));
}

// What is stored comes out, whatever colours the palette has and however few bits there are.
TEST(WholePng, IndicesAreTheNumbersThatAreStored) {
  const auto indices = [](const std::string& file, bool upright = false) {
    const WholeImage image = DecodeWhole(file, ImageLimits(), upright, PixelValues::kIndices);
    EXPECT_TRUE(image.status.ok()) << image.status;
    return image.rgb;
  };
  const std::string palette = PngChunk("PLTE", std::string(3 * 256, '\x77'));
  const std::string alpha = PngChunk("tRNS", Bytes({0, 128}));
  for (const int kind : {0, 3}) {
    const auto of = [&](int depth) {
      return kind == 3 ? PngChunk("PLTE", std::string(3 * (size_t{1} << depth), '\x77')) : "";
    };
    EXPECT_THAT(indices(MakePng(9, 1, 1, kind, Bytes({0, 0x4D, 0x80}), of(1))),
                ElementsAre(0, 1, 0, 0, 1, 1, 0, 1, 1));
    EXPECT_THAT(indices(MakePng(3, 1, 2, kind, Bytes({0, 0x1B}), of(2))), ElementsAre(0, 1, 2));
    EXPECT_THAT(indices(MakePng(2, 1, 4, kind, Bytes({0, 0x1F}), of(4))), ElementsAre(1, 15));
    EXPECT_THAT(indices(MakePng(3, 1, 8, kind, Bytes({0, 0, 7, 255}), of(8))),
                ElementsAre(0, 7, 255));
  }
  EXPECT_THAT(indices(MakePng(2, 1, 8, 3, Bytes({0, 1, 0}), palette + alpha)), ElementsAre(1, 0));
  // One that the palette does not have is still the number that is stored.
  EXPECT_THAT(indices(MakePng(2, 1, 8, 3, Bytes({0, 1, 200}), PngChunk("PLTE", Bytes({1, 2, 3})))),
              ElementsAre(1, 200));
  EXPECT_THAT(indices(MakePng(3, 2, 8, 0, Bytes({0, 10, 0, 12, 0, 11, 0, 20, 21, 22}), "", true)),
              ElementsAre(10, 11, 12, 20, 21, 22));
  const std::string exif("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  const std::string lying =
      MakePng(2, 2, 8, 3, Bytes({0, 1, 2, 0, 3, 4}), palette + PngChunk("eXIf", exif));
  EXPECT_THAT(indices(lying), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(indices(lying, true), ElementsAre(3, 1, 4, 2));
}

TEST(WholePng, OtherImagesHaveNoIndicesAndAreNamed) {
  const auto refused = [](const std::string& file) {
    const WholeImage image = DecodeWhole(file, ImageLimits(), false, PixelValues::kIndices);
    EXPECT_TRUE(absl::IsInvalidArgument(image.status)) << image.status;
    EXPECT_THAT(std::string(image.status.message()), HasSubstr("decode the image with mode RGB"));
    return std::string(image.status.message());
  };
  EXPECT_THAT(refused(MakePng(1, 1, 8, 2, Bytes({0, 1, 2, 3}))), HasSubstr("is a RGB PNG of 8"));
  EXPECT_THAT(refused(MakePng(1, 1, 8, 6, Bytes({0, 1, 2, 3, 4}))), HasSubstr("RGB PNG"));
  EXPECT_THAT(refused(MakePng(1, 1, 8, 4, Bytes({0, 1, 2}))), HasSubstr("gray and alpha PNG"));
  EXPECT_THAT(refused(MakePng(1, 1, 16, 0, Bytes({0, 1, 2}))), HasSubstr("gray PNG of 16 bits"));
  const std::vector<uint8_t> gray = {1, 2, 3, 4};
  for (const char* kind : {".bmp", ".webp", ".tiff", ".pgm"}) {
    EXPECT_THAT(refused(WritePicture({gray.data(), {2, 2}, 1}, kind).value()),
                HasSubstr("and only palette and gray PNGs of 8 bits or less"));
  }
  std::mt19937 random(4);
  EXPECT_THAT(refused(EncodeJpeg(NoisyImage({8, 8}, 1, random), JpegOptions())),
              HasSubstr("is a JPEG,"));
}

TEST(WholePng, InterlacedPixelsComeOutInOrder) {
  // 3x2 gray pixels in Adam7: pass 1 has (0, 0), pass 4 (2, 0), pass 6 (1, 0), pass 7 row 1.
  const std::string rows = Bytes({0, 10, 0, 12, 0, 11, 0, 20, 21, 22});
  std::vector<uint8_t> expected;
  for (const uint8_t value : {10, 11, 12, 20, 21, 22}) expected.insert(expected.end(), 3, value);
  EXPECT_THAT(Decoded(MakePng(3, 2, 8, 0, rows, "", true)), ElementsAreArray(expected));
}

TEST(WholePng, OrientationIsFoundBeforeAndBehindThePixels) {
  const std::string exif("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  const std::string file = MakePng(2, 1, 8, 0, Bytes({0, 1, 2}), PngChunk("eXIf", exif));
  const WholeImage upright = DecodeWhole(file, ImageLimits(), true);
  EXPECT_EQ(upright.size, (Size{1, 2}));
  EXPECT_THAT(upright.rgb, ElementsAre(1, 1, 1, 2, 2, 2));
  const std::string plain = MakePng(2, 1, 8, 0, Bytes({0, 1, 2}));
  const std::string behind =
      plain.substr(0, plain.size() - 12) + PngChunk("eXIf", exif) + PngChunk("IEND", "");
  EXPECT_EQ(DecodeWhole(behind, ImageLimits(), true).size, (Size{1, 2}));
}

// As Pillow does it. Behind the last row there is nothing that pixels need, but the checksum of it.
TEST(WholePng, WhatIsMissingBehindTheLastRowIsNotMissed) {
  constexpr size_t kLastChunk = 12, kChecksum = 4;
  const std::string rows = Bytes({0, 10, 0, 12, 0, 11, 0, 20, 21, 22});
  for (const std::string& whole :
       {MakePng(3, 2, 8, 0, rows, "", true), MakePng(2, 2, 8, 0, Bytes({0, 1, 2, 0, 3, 4})),
        MakePng(3, 1, 2, 3, Bytes({0, 0x18}),
                PngChunk("PLTE", Bytes({1, 2, 3, 4, 5, 6, 7, 8, 9})))}) {
    const std::vector<uint8_t> pixels = Decoded(whole);
    const std::string without = whole.substr(0, whole.size() - kLastChunk);
    for (const std::string& file :
         {without, without + "IEN", without + std::string(300, '\0'),
          without + "other data, and more", without + std::string(300, '\xff'),
          without + PngChunk("tEXt", std::string("k\0v", 3)),
          without + whole.substr(without.size(), kLastChunk - 1) + "?",
          without.substr(0, without.size() - 1)}) {
      EXPECT_THAT(Decoded(file), ElementsAreArray(pixels));
    }
    // Within the pixels, which are read at once; and a checksum that is there and wrong.
    for (size_t less = kChecksum + 1; less < 12; ++less)
      EXPECT_THAT(Refused(without.substr(0, without.size() - less)), HasSubstr("the file is cut"));
    std::string wrong = without;
    wrong.back() ^= 1;
    EXPECT_THAT(Refused(wrong), HasSubstr("IDAT: CRC error"));
  }
}

// Rows of which the last one lacks pixels, in a file that has an end.
TEST(WholePng, RowsThatAreMissingAreMissed) {
  EXPECT_THAT(Refused(MakePng(2, 2, 8, 0, Bytes({0, 1, 2, 0, 3}))), HasSubstr("damaged PNG"));
  EXPECT_THAT(Refused(MakePng(3, 2, 8, 0, Bytes({0, 10, 0, 12, 0, 11, 0, 20, 21}), "", true)),
              HasSubstr("damaged PNG"));
}

TEST(WholePng, AWindowThatIsNamedTooSmallIsEnlarged) {
  std::mt19937 random(5);
  std::string rows;
  for (int x = 0; x < 2001; ++x) rows.push_back(x == 0 ? '\0' : static_cast<char>(random()));
  rows += rows;
  std::string deflated = Deflated(rows);
  deflated[0] = 0x18, deflated[1] = 0x19;  // 512 bytes, with its check; the second row is 2001 back
  const std::string file =
      "\x89PNG\r\n\x1A\n" +
      PngChunk("IHDR", Number(2000, 4, true) + Number(2, 4, true) + Number(8, 1) + Number(0, 4)) +
      PngChunk("IDAT", deflated) + PngChunk("IEND", "");
  EXPECT_THAT(Decoded(file), ElementsAreArray(Decoded(MakePng(2000, 2, 8, 0, rows))));
}

// libpng prints to stderr, where the daemon's log is, unless it is kept from it.
TEST(WholePng, ComplaintsAreInTheStatusAndNotOnStderr) {
  ::testing::internal::CaptureStderr();
  std::string damaged = MakePng(2, 2, 8, 0, Bytes({0, 1, 2, 0, 3, 4}));
  damaged[damaged.size() - 20] ^= 0x55;
  EXPECT_THAT(Refused(damaged), HasSubstr("damaged PNG: IDAT"));
  EXPECT_THAT(Decoded(MakePng(1, 1, 8, 0, Bytes({0, 7}), PngChunk("gAMA", Number(0, 4)))),
              ElementsAre(7, 7, 7));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// --- BMP

TEST(WholeBmp, RowsBeginAtTheBottomUnlessTheHeightIsNegative) {
  const std::string rows = Bytes({3, 2, 1, 0, 6, 5, 4, 0});
  EXPECT_THAT(Decoded(MakeBmp(1, 2, 24, 0, rows)), ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(Decoded(MakeBmp(1, -2, 24, 0, rows)), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(WholeBmp, SixteenBitsLeaveTheLowerOnesZero) {
  const std::string white = Bytes({0xFF, 0x7F, 0, 0});
  EXPECT_THAT(Decoded(MakeBmp(1, 1, 16, 0, white)), ElementsAre(248, 248, 248));
  const std::string masks = Number(0xF800, 4) + Number(0x7E0, 4) + Number(0x1F, 4);
  EXPECT_THAT(Decoded(MakeBmp(1, 1, 16, 3, Bytes({0xE1, 0xFF, 0, 0}), masks)),
              ElementsAre(248, 252, 8));
}

TEST(WholeBmp, MasksSayWhereTheColoursAre) {
  const std::string rgbx = Number(0xFF, 4) + Number(0xFF00, 4) + Number(0xFF0000, 4);
  EXPECT_THAT(Decoded(MakeBmp(1, 1, 32, 3, Bytes({1, 2, 3, 4}), rgbx)), ElementsAre(1, 2, 3));
  EXPECT_THAT(Decoded(MakeBmp(1, 1, 32, 0, Bytes({3, 2, 1, 4}))), ElementsAre(1, 2, 3));
  const std::string ten_bits = Number(0x3FF, 4) + Number(0xFFC00, 4) + Number(0x3FF00000, 4);
  EXPECT_THAT(Refused(MakeBmp(1, 1, 32, 3, Bytes({1, 2, 3, 4}), ten_bits)), HasSubstr("unusual"));
}

TEST(WholeBmp, PalettesOfOneFourAndEightBits) {
  std::string palette;
  for (int i = 0; i < 256; ++i) palette += Bytes({i, 0, 255 - i, 0});
  EXPECT_THAT(Decoded(MakeBmp(2, 1, 1, 0, Bytes({0x40, 0, 0, 0}), palette.substr(0, 8))),
              ElementsAre(255, 0, 0, 254, 0, 1));
  EXPECT_THAT(Decoded(MakeBmp(2, 1, 4, 0, Bytes({0x2F, 0, 0, 0}), palette.substr(0, 64))),
              ElementsAre(253, 0, 2, 240, 0, 15));
  EXPECT_THAT(Decoded(MakeBmp(1, 1, 8, 0, Bytes({200, 0, 0, 0}), palette)),
              ElementsAre(55, 0, 200));
}

TEST(WholeBmp, RunsSkipsAndEndsOfRows) {
  std::string palette;
  for (int i = 0; i < 256; ++i) palette += Bytes({i, i, i, 0});
  const auto gray = [](const std::vector<uint8_t>& rgb) {
    std::vector<int> values;
    for (size_t i = 0; i < rgb.size(); i += 3) values.push_back(rgb[i]);
    return values;
  };
  // Bottom row: two 7s, one pixel skipped, 1 2 3 as they are. Top row: a 9, and the end.
  const std::string runs = Bytes({2, 7, 0, 2, 1, 0, 0, 3, 1, 2, 3, 0, 0, 0, 1, 9, 0, 1});
  EXPECT_THAT(gray(Decoded(MakeBmp(6, 2, 8, 1, runs, palette))),
              ElementsAre(9, 0, 0, 0, 0, 0, 7, 7, 0, 1, 2, 3));
  // 5 6 5, then 1 2 3 as they are.
  const std::string nibbles = Bytes({3, 0x56, 0, 3, 0x12, 0x30, 0, 1});
  EXPECT_THAT(gray(Decoded(MakeBmp(6, 1, 4, 2, nibbles, palette.substr(0, 64)))),
              ElementsAre(5, 6, 5, 1, 2, 3));
  EXPECT_THAT(Refused(MakeBmp(2, 1, 8, 1, Bytes({3, 7, 0, 1}), palette)), HasSubstr("leaves"));
  EXPECT_THAT(Refused(MakeBmp(2, 1, 8, 1, Bytes({0, 2, 0, 9}), palette)), HasSubstr("leaves"));
  EXPECT_THAT(Refused(MakeBmp(2, 1, 8, 1, Bytes({1, 7, 0}), palette)), HasSubstr("cut"));
}

// --- PNM

TEST(WholePnm, TextAndBinary) {
  EXPECT_THAT(Decoded("P1\n# two\n2 1\n01"), ElementsAre(255, 255, 255, 0, 0, 0));
  EXPECT_THAT(Decoded("P4 2 1\n\x40"), ElementsAre(255, 255, 255, 0, 0, 0));
  EXPECT_THAT(Decoded("P2 1 1 255 7"), ElementsAre(7, 7, 7));
  EXPECT_THAT(Decoded("P3 1 1 255 7 8 9"), ElementsAre(7, 8, 9));
  EXPECT_THAT(Decoded("P6#c\n1 1\n255\nABC"), ElementsAre('A', 'B', 'C'));
}

TEST(WholePnm, OtherMaximaAreSpreadOverEightBits) {
  EXPECT_THAT(Decoded("P3 1 1 100 1 50 100"), ElementsAre(3, 128, 255));
  EXPECT_THAT(Decoded("P3 1 1 100 1 50 999"), ElementsAre(3, 128, 255)) << "above is the maximum";
  EXPECT_THAT(Decoded(std::string("P6 1 1 15\n") + Bytes({0, 1, 15})), ElementsAre(0, 17, 255));
  EXPECT_THAT(Decoded(std::string("P5 1 1 65535\n") + Bytes({0x12, 0xFF})),
              ElementsAre(0x12, 0x12, 0x12));
  EXPECT_THAT(Decoded(std::string("P5 1 1 1023\n") + Bytes({3, 0xFF})), ElementsAre(255, 255, 255));
  for (const char* file : {"P5 1 1 0\nA", "P5 1 1 65536\nAB", "P5 1 1 x", "P5 1", "P6 1 1 255\nAB"})
    Refused(file);
}

// --- WebP

TEST(WholeWebp, TheFirstFrameOfAnAnimation) {
  const std::vector<uint8_t> pixels = {10, 20, 30, 40, 50, 60};
  const std::string still = WritePicture({pixels.data(), {2, 1}, 3}, ".webp").value();
  const auto animation = [&](int width, int height = 1, int x = 0, int y = 0) {
    const std::string frame = Number(x / 2, 3) + Number(y / 2, 3) + Number(1, 3) + Number(0, 3) +
                              Number(100, 3) + Number(0, 1) + still.substr(12);
    const std::string body = "VP8X" + Number(10, 4) + Number(2, 4) + Number(width - 1, 3) +
                             Number(height - 1, 3) + "ANIM" + Number(6, 4) + Number(0, 6) + "ANMF" +
                             Number(frame.size(), 4) + frame;
    return "RIFF" + Number(body.size() + 4, 4) + "WEBP" + body;
  };
  EXPECT_THAT(Decoded(animation(2)), ElementsAreArray(pixels));
  EXPECT_THAT(Decoded(animation(3)), ElementsAre(10, 20, 30, 40, 50, 60, 0, 0, 0));
  EXPECT_THAT(Decoded(animation(4, 3, /*x=*/2, /*y=*/2)),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                          0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                          0, 0, 0, 0, 0, 0, 10, 20, 30, 40, 50, 60));
  for (const auto& [x, y] : {std::pair(2, 0), std::pair(0, 2), std::pair(1 << 24, 0)})
    EXPECT_THAT(Refused(animation(3, 2, x, y)), HasSubstr("outside the picture"));
}

// --- TIFF

TEST(WholeTiff, SamplesOfManyKinds) {
  EXPECT_THAT(Decoded(MakeTiff(Bytes({1, 2, 3}), TiffOf(1, 1, {8, 8, 8}, 2, 3))),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Decoded(MakeTiff(Bytes({0x12, 0, 0x34, 0, 0x56, 0}), TiffOf(1, 1, {16, 16, 16}, 2, 6),
                               /*big=*/true)),
              ElementsAre(0x12, 0x34, 0x56))
      << "16 bits, big endian";
  EXPECT_THAT(Decoded(MakeTiff(Bytes({200}), TiffOf(1, 1, {8}, 0, 1))), ElementsAre(55, 55, 55))
      << "0 is white";
  EXPECT_THAT(Decoded(MakeTiff(Bytes({0x40}), TiffOf(2, 1, {1}, 1, 1))),
              ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(Decoded(MakeTiff(Bytes({255, 0, 0, 0}), TiffOf(1, 1, {8, 8, 8, 8}, 5, 4))),
              ElementsAre(0, 255, 255))
      << "CMYK";
  auto palette = TiffOf(1, 1, {8}, 3, 1);
  std::vector<uint64_t> map(768, 0);
  map[2] = 0x1100, map[256 + 2] = 0x2200, map[512 + 2] = 0x3300;
  palette.push_back({320, 3, map});
  EXPECT_THAT(Decoded(MakeTiff(Bytes({2}), palette)), ElementsAre(0x11, 0x22, 0x33));
}

TEST(WholeTiff, PlanesTilesAndStrips) {
  auto planes = TiffOf(2, 1, {8, 8, 8}, 2, 2);
  planes[5].values = {8, 10, 12};
  planes[8].values = {2, 2, 2};
  planes.push_back({284, 3, {2}});
  EXPECT_THAT(Decoded(MakeTiff(Bytes({1, 2, 3, 4, 5, 6}), planes)), ElementsAre(1, 3, 5, 2, 4, 6));
  // Two tiles of 16x16 beside each other, for an image of 17x1.
  std::string tiles(512, '\0');
  for (int x = 0; x < 16; ++x)
    tiles[x] = static_cast<char>(x), tiles[256 + x] = static_cast<char>(16 + x);
  const std::vector<TiffEntry> tiled = {
      {256, 4, {17}}, {257, 4, {1}},  {258, 3, {8}},  {259, 3, {1}},      {262, 3, {1}},
      {277, 3, {1}},  {322, 4, {16}}, {323, 4, {16}}, {324, 4, {8, 264}}, {325, 4, {256, 256}}};
  std::vector<uint8_t> expected;
  for (int x = 0; x < 17; ++x) expected.insert(expected.end(), 3, static_cast<uint8_t>(x));
  EXPECT_THAT(Decoded(MakeTiff(tiles, tiled)), ElementsAreArray(expected));
  // Tiles of 16x16 for 37x29: the last of each row and column are cut. Of 16 bits both bytes are
  // the same, so that it does not matter how they become 8.
  struct Kind {
    int bits, samples;
    bool is_big;
  };
  for (const auto& [bits, samples, is_big] :
       {Kind{8, 1, false}, Kind{16, 1, false}, Kind{16, 1, true}, Kind{8, 2, false},
        Kind{16, 2, true}, Kind{16, 3, false}}) {
    constexpr int kWidth = 37, kHeight = 29, kSide = 16, kAcross = 3, kDown = 2;
    const auto gray = [](int x, int y) { return static_cast<uint8_t>(x * 5 + y * 3); };
    const size_t tile_bytes = static_cast<size_t>(kSide * kSide * samples * bits / 8);
    std::string data;
    std::vector<uint64_t> offsets;
    for (int tile = 0; tile < kAcross * kDown; ++tile) {
      offsets.push_back(8 + data.size());
      for (int i = 0; i < kSide * kSide; ++i) {
        const int x = tile % kAcross * kSide + i % kSide, y = tile / kAcross * kSide + i / kSide;
        for (int s = 0; s < samples; ++s) {
          const bool is_alpha = samples == 2 && s == 1;
          data.append(static_cast<size_t>(bits / 8),
                      is_alpha ? '\xff' : static_cast<char>(gray(x, y)));
        }
      }
    }
    std::vector<TiffEntry> entries = {{256, 4, {kWidth}},
                                      {257, 4, {kHeight}},
                                      {258, 3, std::vector<uint64_t>(samples, bits)},
                                      {259, 3, {1}},
                                      {262, 3, {samples == 3 ? 2u : 1u}},
                                      {277, 3, {static_cast<uint64_t>(samples)}},
                                      {322, 4, {kSide}},
                                      {323, 4, {kSide}},
                                      {324, 4, offsets},
                                      {325, 4, std::vector<uint64_t>(offsets.size(), tile_bytes)}};
    if (samples == 2) entries.push_back({338, 3, {2}});
    std::vector<uint8_t> wanted;
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) wanted.insert(wanted.end(), 3, gray(x, y));
    }
    const std::vector<uint8_t> got = Decoded(MakeTiff(data, entries, is_big));
    ASSERT_EQ(got.size(), wanted.size());
    const auto [first, other] = std::mismatch(got.begin(), got.end(), wanted.begin());
    EXPECT_EQ(first - got.begin(), static_cast<int64_t>(got.size()))
        << samples << " samples of " << bits << " bits differ there";
  }
  // Five rows, two in a strip.
  auto strips = TiffOf(1, 5, {8}, 1, 2);
  strips[5].values = {8, 10, 12};
  strips[7].values = {2};
  strips[8].values = {2, 2, 1};
  EXPECT_THAT(Decoded(MakeTiff(Bytes({1, 2, 3, 4, 5}), strips)),
              ElementsAre(1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5));
}

// As every reader of TIFFs does, whether the pipeline asks for it or not.
TEST(WholeTiff, EachOrientationIsApplied) {
  // 1 2
  // 3 4   turned as EXIF's eight orientations say.
  const std::vector<std::vector<int>> turned = {{1, 2, 3, 4}, {2, 1, 4, 3}, {4, 3, 2, 1},
                                                {3, 4, 1, 2}, {1, 3, 2, 4}, {3, 1, 4, 2},
                                                {4, 2, 3, 1}, {2, 4, 1, 3}};
  for (uint64_t orientation = 1; orientation <= 8; ++orientation) {
    auto entries = TiffOf(2, 2, {8}, 1, 4);
    entries.insert(entries.begin() + 6, TiffEntry());
    for (const int type : {3, 4}) {
      entries[6] = {274, type, {orientation}};
      const std::string file = MakeTiff(Bytes({1, 2, 3, 4}), entries);
      for (const bool asked : {false, true}) {
        const std::vector<uint8_t> upright = DecodeWhole(file, ImageLimits(), asked).rgb;
        ASSERT_EQ(upright.size(), 12u);
        for (int i = 0; i < 4; ++i)
          EXPECT_EQ(upright[i * 3], turned[orientation - 1][i]) << orientation << " " << type;
      }
    }
  }
}

TEST(WholeTiff, OddKindsAreRefusedByName) {
  auto odd = TiffOf(1, 1, {8}, 1, 1);
  odd[3].values = {34925};  // LZMA
  EXPECT_THAT(Refused(MakeTiff(Bytes({1}), odd)), HasSubstr("compression 34925; write it with"));
  auto floats = TiffOf(1, 1, {32}, 1, 4);
  floats.push_back({339, 3, {3}});
  EXPECT_THAT(Refused(MakeTiff(Bytes({0, 0, 0, 0}), floats)), HasSubstr("unsupported TIFF"));
}

}  // namespace
}  // namespace feedwater::server::testing
