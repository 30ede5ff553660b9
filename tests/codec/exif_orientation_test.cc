// The orientation in EXIF data, of every type and byte order that programs write, in each container
// that has it. (libtiff reads a TIFF's own: whole_formats_test.)
#include <gtest/gtest.h>

#include <utility>

#include "server/codec/image_writer.h"
#include "server/codec/jpeg/markers.h"
#include "tests/codec/whole_images.h"

namespace feedwater::server::testing {
namespace {

constexpr int kByte = 1, kText = 2, kShort = 3, kLong = 4, kSignedLong = 9;

std::string Exif(bool big, int type, uint64_t value, uint64_t count = 1) {
  const int bytes = type == kByte ? 1 : type == kShort ? 2 : 4;
  return (big ? "MM" : "II") + Number(42, 2, big) + Number(8, 4, big) + Number(1, 2, big) +
         Number(0x112, 2, big) + Number(type, 2, big) + Number(count, 4, big) +
         Number(value, bytes, big) + std::string(4 - bytes, '\0') + Number(0, 4, big);
}
int Read(const std::string& tiff) { return ReadExifOrientation(AsBytes(tiff)); }

TEST(ExifOrientation, IsReadByItsType) {
  for (const bool big : {false, true}) {
    for (const int type : {kByte, kShort, kLong}) {
      for (int value = 1; value <= 8; ++value)
        EXPECT_EQ(Read(Exif(big, type, static_cast<uint64_t>(value))), value) << type << big;
      for (const uint64_t none : {0u, 9u, 255u, 0x10006u, 0x6000000u, 0xffffffffu}) {
        const uint64_t most = type == kByte ? 0xff : type == kShort ? 0xffff : 0xffffffff;
        if (none > most) continue;
        EXPECT_EQ(Read(Exif(big, type, none)), 1) << type << " " << none;
      }
      EXPECT_EQ(Read(Exif(big, type, 6, 2)), 1) << "two values";
      EXPECT_EQ(Read(Exif(big, type, 6).substr(0, 21)), 1) << "cut off";
    }
    for (const int type : {0, kText, kSignedLong}) EXPECT_EQ(Read(Exif(big, type, 6)), 1) << type;
  }
}

TEST(ExifOrientation, TurnsAnImageInEveryContainer) {
  const std::vector<uint8_t> pixels = {10, 20, 30, 40, 50, 60};
  for (const bool big : {false, true}) {
    for (const int type : {kByte, kShort, kLong}) {
      const std::string exif = Exif(big, type, 6), marked = std::string("Exif\0\0", 6) + exif;
      std::string jpeg = EncodeJpeg({{2, 1}, 3, pixels}, JpegOptions());
      jpeg.insert(2, "\xff\xe1" + Number(marked.size() + 2, 2, true) + marked);
      const std::string png = MakePng(2, 1, 8, 2, std::string(7, '\0'), PngChunk("eXIf", exif));
      const std::string still = WritePicture({pixels.data(), {2, 1}, 3}, ".webp").value();
      const std::string body = "WEBPVP8X" + Number(10, 4) + Number(8, 4) + Number(1, 3) +
                               Number(0, 3) + still.substr(12) + "EXIF" + Number(marked.size(), 4) +
                               marked;
      const std::string webp = "RIFF" + Number(body.size(), 4) + body;
      for (const auto& [name, file] : {std::pair("JPEG", jpeg), {"PNG", png}, {"WebP", webp}}) {
        const WholeImage image = DecodeWhole(file, ImageLimits(), true);
        EXPECT_TRUE(image.status.ok()) << image.status;
        EXPECT_EQ(image.size, (Size{1, 2})) << name << type << big;
        EXPECT_EQ(DecodeWhole(file).size, (Size{2, 1}));
      }
    }
  }
}

}  // namespace
}  // namespace feedwater::server::testing
