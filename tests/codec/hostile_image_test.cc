// Goal: no bytes that call themselves an image do harm: every outcome is a Status, within a second
// of CPU, and the workspace goes on working. Method: the corpora of $FEEDWATER_TEST_DATA/hostile,
// and headers and cuts made here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/base/clock.h"
#include "server/codec/image.h"
#include "tests/codec/test_images.h"
#include "tests/testing/test_data.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPadding = 64;

// What a pipeline does with an image: header, then a crop of it resized to 64x64.
absl::Status DecodeLikeAPipeline(const std::string& bytes, ImageWorkspace& workspace) {
  std::vector<std::byte> padded(bytes.size() + kPadding);
  std::memcpy(padded.data(), bytes.data(), bytes.size());
  const absl::Span<const std::byte> encoded(padded.data(), bytes.size());
  const ImageLimits limits;
  for (const bool orient : {false, true}) {
    const auto info = ReadImageInfo(encoded, orient, limits, workspace);
    if (!info.ok()) return info.status();
    Geometry geometry;
    geometry.crop = {info->size.width / 4, info->size.height / 4, std::max(1, info->size.width / 2),
                     std::max(1, info->size.height / 2)};
    geometry.scaled = {64, 64};
    geometry.window = {0, 0, 64, 64};
    std::vector<std::byte> out(64 * 64 * 3);
    const absl::Status status =
        DecodeInto(encoded, orient, limits, geometry, PixelFormat(), out.data(), workspace);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(HostileImages, OfTheCorporaEndInAStatusInBoundedTimeAndTheSameTwice) {
  FW_TEST_DATA_OR_SKIP(folder, "hostile");
  ImageWorkspace workspace;
  int files = 0, decoded = 0;
  for (const char* name : {"jpeg", "png", "jpeg_bugs", "damaged_jpeg"}) {
    if (!fs::exists(fs::path(folder) / name)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(folder) / name)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
      const int64_t start = ThreadCpuNs();
      const absl::Status first = DecodeLikeAPipeline(bytes, workspace);
      // Two decodes of at most a second each; sanitizers slow down what the time limit does not
      // see.
      EXPECT_LT(ThreadCpuNs() - start, 10'000'000'000) << entry.path();
      const bool timed_out = absl::StrContains(first.message(), "ms");
      if (!timed_out) {
        EXPECT_EQ(DecodeLikeAPipeline(bytes, workspace).code(), first.code()) << entry.path();
      }
      ++files;
      if (first.ok()) ++decoded;
    }
  }
  EXPECT_GT(files, 100);
  EXPECT_GT(decoded, 0) << "the corpora hold good images, too";
}

TEST(HostileImages, NothingAndGarbageAreRefused) {
  ImageWorkspace workspace;
  for (const std::string& bytes :
       {std::string(), std::string("\xff"), std::string("\xff\xd8"), std::string("\xff\xd8\xff"),
        std::string(1000, '\0'), std::string("GIF89a"), std::string("\x89PNG\r\n\x1a\n"),
        std::string("RIFF")}) {
    EXPECT_FALSE(DecodeLikeAPipeline(bytes, workspace).ok());
  }
}

TEST(HostileImages, AHeaderOf30000SquareIsRefusedBeforeAnythingIsAllocated) {
  // SOI, SOF0 with 30000x30000 and three components, SOS: no scan.
  const unsigned char jpeg[] = {0xff, 0xd8, 0xff, 0xc0, 0,    17, 8, 0x75, 0x30, 0x75, 0x30, 3,
                                1,    0x11, 0,    2,    0x11, 0,  3, 0x11, 0,    0xff, 0xda, 0,
                                12,   3,    1,    0,    2,    0,  3, 0,    0,    63,   0};
  const unsigned char png[] = {0x89, 'P',  'N', 'G', '\r', '\n', 0x1a, '\n', 0,    0, 0,
                               13,   'I',  'H', 'D', 'R',  0,    0,    0x75, 0x30, 0, 0,
                               0x75, 0x30, 8,   2,   0,    0,    0,    0,    0,    0, 0};
  ImageWorkspace workspace;
  for (const std::string& bytes : {std::string(reinterpret_cast<const char*>(jpeg), sizeof(jpeg)),
                                   std::string(reinterpret_cast<const char*>(png), sizeof(png))}) {
    const absl::Status status = DecodeLikeAPipeline(bytes, workspace);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(absl::StrContains(status.message(), "30000")) << status;
  }
}

}  // namespace
}  // namespace feedwater::server
