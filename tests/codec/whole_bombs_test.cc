// Goal: a file of PNG, BMP, WebP, PNM or TIFF costs what its size in pixels costs, whatever else it
// says. Method: headers that lie, floods of chunks, data that grows a thousandfold, lists longer
// than the file; each decoded while memory at its peak is measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/codec/image_writer.h"
#include "tests/codec/resources.h"
#include "tests/codec/whole_images.h"

namespace feedwater::server::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

class WholeBombs : public ::testing::Test {
 protected:
  // Decodes, which must take no more than the pixels, at 3 bytes for each of `size` twice (ours and
  // the test's), and `more_bytes`.
  WholeImage Decode(const std::string& file, Size size, int64_t more_bytes,
                    const ImageLimits& limits = ImageLimits()) {
    const int64_t resident = MemoryOf("VmRSS:");
    StartPeak();
    WholeImage image = DecodeWhole(file, limits);
    const int64_t peak = MemoryOf("VmHWM:") - resident;
    if (!kSanitized) {
      EXPECT_LE(peak, int64_t{6} * size.width * size.height + more_bytes + 4 * kMiB);
    }
    return image;
  }
  std::string Refused(const std::string& file, int64_t more_bytes = 0) {
    const WholeImage image = Decode(file, {0, 0}, more_bytes);
    EXPECT_TRUE(absl::IsInvalidArgument(image.status)) << image.status;
    return std::string(image.status.message());
  }
};

TEST_F(WholeBombs, PixelsOverTheLimitAreRefusedByTheHeader) {
  const std::string rows(1000, '\0');
  EXPECT_THAT(Refused(MakePng(30000, 30000, 8, 2, rows)), HasSubstr("30000x30000"));
  EXPECT_THAT(Refused(MakePng(0x7FFFFFFF, 1, 8, 2, rows)), HasSubstr("side of more than"));
  EXPECT_THAT(Refused(MakeBmp(30000, 30000, 24, 0, rows)), HasSubstr("30000x30000"));
  EXPECT_THAT(Refused(MakeBmp(30000, INT32_MIN, 24, 0, rows)), HasSubstr("side of more than"));
  EXPECT_THAT(Refused("P6 30000 30000 255\n"), HasSubstr("30000x30000"));
  EXPECT_THAT(Refused("P5 1 2000000 255\n"), HasSubstr("side of more than"));
  std::string webp =
      WritePicture({reinterpret_cast<const uint8_t*>(rows.data()), {8, 8}, 3}, ".webp").value();
  webp.replace(21, 4, Number(0x0FFFFFFF, 4));  // 16384x16384
  EXPECT_THAT(Refused(webp), HasSubstr("16384x16384"));
}

// Two readers of one header is how such a file passed: one took 8x8, the other 12000x12000.
TEST_F(WholeBombs, ATiffThatGivesItsSizeTwice) {
  const std::string strip = Deflated(std::string(12000 * 3 * 100, '\0'));
  for (const bool large_first : {true, false}) {
    SCOPED_TRACE(large_first);
    const TiffEntry widths[] = {{256, 4, {12000}}, {256, 4, {8}}};
    const TiffEntry heights[] = {{257, 4, {12000}}, {257, 4, {8}}};
    const std::vector<uint64_t> offsets(120, 8), counts(120, strip.size());
    const std::string file = MakeTiff(strip, {widths[!large_first],
                                              widths[large_first],
                                              heights[!large_first],
                                              heights[large_first],
                                              {258, 3, {8, 8, 8}},
                                              {259, 3, {8}},
                                              {262, 3, {2}},
                                              {273, 4, offsets},
                                              {277, 3, {3}},
                                              {278, 4, {100}},
                                              {279, 4, counts}});
    EXPECT_THAT(Refused(file, 2 * kMiB), HasSubstr("appears twice"));
  }
}

// libtiff keeps each list that an entry names, though many name the same bytes.
TEST_F(WholeBombs, ATiffWhoseEntriesNameTheSameBytesAgainAndAgain) {
  const std::string data(2 * kMiB, 'a');
  const auto file = [&](int entries, int64_t count, int type) {
    std::vector<TiffEntry> all = TiffOf(1, 1, {8}, 1, 1);
    for (int i = 0; i < entries; ++i) all.push_back({40000 + i, type, {8}, count});
    return MakeTiff(data, all);
  };
  const int64_t most = static_cast<int64_t>(data.size()) / 4;
  EXPECT_TRUE(Decode(file(1, most - 100, 4), {1, 1}, 8 * kMiB).status.ok()) << "once is all right";
  EXPECT_THAT(Refused(file(400, most, 4)), HasSubstr("name more bytes than the file has"));
  EXPECT_THAT(Refused(file(2, most, 4)), HasSubstr("name more bytes than the file has"));
  EXPECT_TRUE(Decode(file(1, 0xFFFFFFFF, 4), {1, 1}, 8 * kMiB).status.ok())
      << "what lies outside of the file is left out";
  EXPECT_THAT(Refused(file(4000, 1, 4)), HasSubstr("directory of 4009 entries"));
}

// Decoders know of no way to stop them inside of one.
TEST_F(WholeBombs, ATileMuchLargerThanItsImage) {
  const auto tiled = [](uint64_t width, uint64_t height, uint64_t tile_width,
                        uint64_t tile_height) {
    return MakeTiff(std::string(64, 'a'), {{256, 4, {width}},
                                           {257, 4, {height}},
                                           {258, 3, {8}},
                                           {259, 3, {1}},
                                           {262, 3, {1}},
                                           {277, 3, {1}},
                                           {322, 4, {tile_width}},
                                           {323, 4, {tile_height}},
                                           {324, 4, {8}},
                                           {325, 4, {64}}});
  };
  EXPECT_THAT(Refused(tiled(1, 1 << 20, 1024, 1 << 20)), HasSubstr("tiles much larger"));
  EXPECT_THAT(Refused(tiled(8, 8, 2048, 16)), HasSubstr("tiles much larger"));
  Decode(tiled(8, 8, 1024, 1024), {8, 8}, 16 * kMiB);  // is cut, and takes no more than its tile
}

// The rest of a PNG's data is inflated to nowhere.
TEST_F(WholeBombs, TimeBehindAPngsLastRowIsBounded) {
  ImageLimits limits;
  limits.max_decode_ms = 20;
  const std::string file = MakePng(1, 1, 8, 2, std::string(512 * kMiB, '\0'));
  const int64_t start = ThreadCpuNs();
  const WholeImage image = DecodeWhole(file, limits);
  EXPECT_LT(ThreadCpuNs() - start, 150'000'000 * (kSanitized ? 10 : 1));
  EXPECT_THAT(std::string(image.status.message()), HasSubstr("max_decode_ms"));
}

TEST_F(WholeBombs, APngsChunksCostNothing) {
  const std::string rows = std::string(64, '\0');
  const std::string large = Deflated(std::string(16 * kMiB, 'x'));
  std::string chunks;
  for (int i = 0; i < 20000; ++i) chunks += PngChunk("tEXt", std::string("k\0v", 3));
  for (int i = 0; i < 200; ++i) chunks += PngChunk("zTXt", std::string("k\0\0", 3) + large);
  chunks += PngChunk("iCCP", std::string("k\0\0", 3) + large);
  for (int i = 0; i < 20000; ++i) chunks += PngChunk("prVt", "unknown");
  const WholeImage image = Decode(MakePng(7, 8, 8, 0, rows, chunks), {7, 8}, 16 * kMiB);
  EXPECT_TRUE(image.status.ok()) << image.status;
}

TEST_F(WholeBombs, DataThatGrowsStopsAtTheImagesEnd) {
  const std::string zeros(32 * kMiB, '\0');
  const absl::Status png = Decode(MakePng(7, 8, 8, 0, zeros), {7, 8}, 0).status;
  EXPECT_TRUE(png.ok() || absl::IsInvalidArgument(png)) << png;
  const std::string strip = Deflated(zeros);
  const std::string file = MakeTiff(strip, {{256, 4, {8}},
                                            {257, 4, {8}},
                                            {258, 3, {8}},
                                            {259, 3, {8}},
                                            {262, 3, {1}},
                                            {273, 4, {8}},
                                            {277, 3, {1}},
                                            {278, 4, {8}},
                                            {279, 4, {strip.size()}}});
  const WholeImage image = Decode(file, {8, 8}, 0);
  EXPECT_TRUE(image.status.ok()) << image.status;
}

TEST_F(WholeBombs, ATiffsLiesAboutItsLists) {
  const auto file = [](std::vector<TiffEntry> changed) {
    std::vector<TiffEntry> entries = {{256, 4, {64}}, {257, 4, {64}}, {258, 3, {8}},
                                      {259, 3, {1}},  {262, 3, {1}},  {273, 4, {8}},
                                      {277, 3, {1}},  {278, 4, {64}}, {279, 4, {4096}}};
    for (const TiffEntry& entry : changed) {
      const auto same = std::find_if(entries.begin(), entries.end(),
                                     [&](const TiffEntry& e) { return e.tag == entry.tag; });
      if (same != entries.end()) {
        *same = entry;
      } else {
        entries.push_back(entry);
      }
    }
    return MakeTiff(std::string(4096, 'a'), entries);
  };
  EXPECT_TRUE(DecodeWhole(file({})).status.ok());
  const std::vector<std::vector<TiffEntry>> lies = {
      {{273, 4, {8}, 0x0FFFFFFF}},  // as many strips as 4 GiB of offsets
      {{279, 4, {0xFFFFFFFF}}},     // a strip of 4 GiB
      {{279, 4, {4096}, 0x0FFFFFFF}},
      {{273, 4, {0xFFFFFFF0}}},              // far behind the end
      {{277, 3, {65535}}},                   // samples
      {{258, 3, {65535}}},                   // bits
      {{257, 4, {1 << 20}}, {278, 4, {1}}},  // a strip for each of a million rows
      {{256, 4, {0}}},
      {{322, 4, {1 << 30}}, {323, 4, {1 << 30}}, {324, 4, {8}}, {325, 4, {4096}}},
      {{322, 4, {0}}, {323, 4, {0}}, {324, 4, {8}}, {325, 4, {4096}}},
      {{259, 3, {5}}},                             // not LZW
      {{259, 3, {7}}},                             // not a JPEG
      {{259, 3, {4}}},                             // not a fax
      {{330, 4, std::vector<uint64_t>(5000, 8)}},  // thousands of further directories
      {{320, 3, {1}, 0x7FFFFFFF}},
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    const WholeImage image = Decode(file(lies[i]), {64, 64}, 24 * kMiB);
    EXPECT_TRUE(image.status.ok() || absl::IsInvalidArgument(image.status)) << image.status;
  }
}

TEST_F(WholeBombs, ADirectoryThatPointsAtItselfIsReadOnce) {
  std::string file = MakeTiff("a", {{256, 4, {1}},
                                    {257, 4, {1}},
                                    {258, 3, {8}},
                                    {259, 3, {1}},
                                    {262, 3, {1}},
                                    {273, 4, {8}},
                                    {277, 3, {1}},
                                    {278, 4, {1}},
                                    {279, 4, {1}}});
  file.replace(file.size() - 4, 4, file.substr(4, 4));
  EXPECT_TRUE(Decode(file, {1, 1}, 0).status.ok());
}

TEST_F(WholeBombs, TimeIsBoundedForEachFormat) {
  ImageLimits limits;
  limits.max_decode_ms = 0;
  const int side = 2000;  // some milliseconds
  const std::vector<uint8_t> pixels(static_cast<size_t>(side) * side * 3);
  for (const char* kind : {".png", ".bmp", ".ppm", ".tiff"}) {
    const std::string file = WritePicture({pixels.data(), {side, side}, 3}, kind).value();
    const absl::Status status = DecodeWhole(file, limits).status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("over max_decode_ms")) << kind;
  }
}

// Rows a million pixels long, and a million rows: within max_pixels, so they are decoded. (libpng
// writes no more than that.)
TEST_F(WholeBombs, LongSides) {
  const std::vector<uint8_t> pixels(3 << 20);
  for (const char* kind : {".png", ".bmp", ".ppm", ".tiff"}) {
    for (const Size size : {Size{1'000'000, 1}, Size{1, 1'000'000}}) {
      SCOPED_TRACE(absl::StrCat(kind, size.width));
      const std::string file = WritePicture({pixels.data(), size, 3}, kind).value();
      const WholeImage image = Decode(file, size, 40 * kMiB);
      EXPECT_TRUE(image.status.ok()) << image.status;
    }
  }
}

}  // namespace
}  // namespace feedwater::server::testing
