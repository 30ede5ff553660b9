// Goal: no bytes that call themselves an image do harm: every outcome is a Status, within a second
// of CPU and 512 MiB, the same at every level and every time, and the workspace goes on working.
// Method: every file of $FEEDWATER_TEST_DATA/hostile, also those that are no images, and headers
// and cuts made here. What was seen is printed in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/codec/image.h"
#include "tests/codec/jpeg_levels.h"
#include "tests/codec/resources.h"
#include "tests/codec/test_images.h"
#include "tests/codec/whole_images.h"

namespace feedwater::server {
namespace {

using testing::AsBytes;
using testing::PaddedBytes;
using testing::SeekIndexMap;

using testing::kSanitized;
using testing::MemoryOf;
using testing::StartPeak;

// The limit on time is looked at between rows.
constexpr int64_t kMaxCpuNs = kSanitized ? 20'000'000'000 : 1'200'000'000;
constexpr int64_t kMaxMemoryBytes = kSanitized ? int64_t{4} << 30 : int64_t{512} << 20;
constexpr int kSide = 64;  // of what comes out
constexpr int kDecodes = 3;

struct Outcome {
  absl::Status status;
  std::vector<std::byte> pixels;
};

// What a pipeline does with an image: header, then a crop of it resized, upright or not, and
// decoded smaller where that is allowed.
Outcome DecodeLikeAPipeline(absl::Span<const std::byte> encoded, ImageWorkspace& workspace) {
  Outcome outcome;
  const ImageLimits limits;
  outcome.pixels.resize(kDecodes * kSide * kSide * 3);
  std::byte* out = outcome.pixels.data();
  for (int i = 0; i < kDecodes; ++i) {
    const bool orient = i == 1;
    const auto info = ReadImageInfo(encoded, orient, limits, workspace);
    outcome.status = info.status();
    if (!info.ok()) break;
    Geometry geometry;
    geometry.crop = {info->size.width / 4, info->size.height / 4, std::max(1, info->size.width / 2),
                     std::max(1, info->size.height / 2)};
    geometry.scaled = {kSide, kSide};
    geometry.window = {0, 0, kSide, kSide};
    geometry.fast_scale = i == 2;
    outcome.status = DecodeInto(encoded, orient, limits, geometry, PixelFormat(), out, workspace);
    if (!outcome.status.ok()) break;
    out += kSide * kSide * 3;
  }
  return outcome;
}

absl::Status DecodeLikeAPipeline(const std::string& bytes, ImageWorkspace& workspace) {
  return DecodeLikeAPipeline(PaddedBytes(AsBytes(bytes), 0).span(), workspace).status;
}

// The largest of something, and whose it is.
struct Most {
  int64_t value = 0;
  std::string file;
  void Note(int64_t other, const std::string& name) {
    if (other <= value) return;
    value = other;
    file = name;
  }
};

class HostileCorpora : public ::testing::Test {
 protected:
  HostileCorpora() {
    turbo_.UseOwnDecoder(false);
    indexed_.UseSeekIndexes(&indexes_);
  }

  // One decode at one level: within its limits, and with the verdict and the pixels of `expected`,
  // if there is one.
  Outcome Decode(const char* level, absl::Span<const std::byte> bytes, ImageWorkspace& workspace,
                 const Outcome* expected) {
    const int64_t resident = MemoryOf("VmRSS:");
    StartPeak();
    const int64_t start_ns = ThreadCpuNs();
    Outcome outcome = DecodeLikeAPipeline(bytes, workspace);
    const int64_t cpu_ns = ThreadCpuNs() - start_ns;
    const int64_t memory = MemoryOf("VmHWM:") - resident;
    slowest_.Note(cpu_ns, name_);
    largest_.Note(memory, name_);
    EXPECT_LE(cpu_ns, kDecodes * kMaxCpuNs) << name_ << " " << level;
    EXPECT_LE(memory, kMaxMemoryBytes) << name_ << " " << level;
    if (absl::StrContains(outcome.status.message(), " ms")) {  // how far it comes is the machine's
      timed_out_ = true;
    } else if (expected != nullptr && !timed_out_) {
      EXPECT_EQ(outcome.status, expected->status) << name_ << " " << level;
      if (outcome.status.ok()) {
        EXPECT_TRUE(outcome.pixels == expected->pixels) << name_ << " " << level;
      }
    }
    return outcome;
  }

  void DecodeAtEveryLevel(const std::string& bytes) {
    timed_out_ = false;
    indexes_.documents().clear();
    const PaddedBytes file(AsBytes(bytes), 0);
    const Outcome expected = Decode("libjpeg-turbo", file.span(), turbo_, nullptr);
    Decode("own decoder", file.span(), own_, &expected);
    Decode("own decoder again", file.span(), own_, &expected);
    Decode("making a seek index", file.span(), indexed_, &expected);
    Decode("with a seek index", file.span(), indexed_, &expected);
    const PaddedBytes document(PackCoefficients(file.span(), ImageLimits(), own_), 0);
    if (!document.empty()) {
      ++packed_;
      Decode("coefficients", document.span(), store_, &expected);
    }
    with_index_ += !indexes_.documents().empty();
    timed_out_files_ += timed_out_;
    ++(expected.status.ok() ? decoded_ : refused_);
  }

  std::string Summary() const {
    return absl::StrCat("hostile images: ", decoded_ + refused_, " files, ", decoded_, " decoded (",
                        with_index_, " with a seek index, ", packed_, " from coefficients), ",
                        refused_, " refused, ", timed_out_files_, " of them over the time limit; ",
                        "slowest ", slowest_.value / 1'000'000, " ms CPU (", slowest_.file,
                        "), largest ", largest_.value >> 20, " MiB (", largest_.file, ")");
  }

  SeekIndexMap indexes_;
  ImageWorkspace turbo_, own_, indexed_, store_;
  std::string name_;
  bool timed_out_ = false;
  int decoded_ = 0, refused_ = 0, packed_ = 0, with_index_ = 0, timed_out_files_ = 0;
  Most slowest_, largest_;
};

TEST_F(HostileCorpora, EndInTheSameStatusAtEveryLevelWithinASecondAndBoundedMemory) {
  const auto files = testing::TestDataFiles("hostile");
  if (files.empty()) GTEST_SKIP() << "no hostile files: set FEEDWATER_TEST_DATA";
  for (const auto& path : files) {
    name_ = absl::StrCat(path.parent_path().filename().string(), "/", path.filename().string());
    DecodeAtEveryLevel(testing::ReadFile(path));
  }
  std::printf("%s\n", Summary().c_str());
  EXPECT_GT(decoded_ + refused_, 100);
  EXPECT_GT(decoded_, 0) << "the corpora hold good images, too";
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
  ImageWorkspace workspace;
  for (const std::string& bytes : {std::string(reinterpret_cast<const char*>(jpeg), sizeof(jpeg)),
                                   testing::MakePng(30000, 30000, 8, 2, "")}) {
    const absl::Status status = DecodeLikeAPipeline(bytes, workspace);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(absl::StrContains(status.message(), "30000")) << status;
  }
}

}  // namespace
}  // namespace feedwater::server
