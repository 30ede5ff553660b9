// libpng's complaints come as a status and not on the daemon's stderr, where its log is.
// Method: good, odd and damaged PNGs through the codec, with stderr caught.
#include "server/codec/png_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <opencv2/imgcodecs.hpp>
#include <string>
#include <vector>

#include "server/codec/opencv_codec.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSide = 40;

std::vector<unsigned char> Png() {
  cv::Mat image(kSide, kSide, CV_8UC3);
  for (int i = 0; i < 3 * kSide * kSide; ++i) image.data[i] = static_cast<unsigned char>(i * i);
  std::vector<unsigned char> file;
  EXPECT_TRUE(cv::imencode(".png", image, file));
  return file;
}

// A chunk that libpng warns about: a gamma of 0, with its checksum, behind the header.
std::vector<unsigned char> WithOddGamma(std::vector<unsigned char> file) {
  const unsigned char chunk[] = {0, 0, 0, 4, 'g',  'A',  'M',  'A',
                                 0, 0, 0, 0, 0x8b, 0x25, 0x60, 0x4d};
  file.insert(file.begin() + 33, std::begin(chunk), std::end(chunk));
  return file;
}

std::vector<unsigned char> Damaged(std::vector<unsigned char> file) {
  file[file.size() / 2] ^= 0x55;
  return file;
}

absl::Status Decode(const std::vector<unsigned char>& file, std::string* printed) {
  OpenCvCodec codec;
  ::testing::internal::CaptureStderr();
  const absl::Status status = codec.Decode(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(file.data()), file.size()),
      {kSide, kSide});
  *printed = ::testing::internal::GetCapturedStderr();
  return status;
}

TEST(PngMessages, AnErrorIsInTheStatusAndNotOnStderr) {
  std::string printed;
  const absl::Status status = Decode(Damaged(Png()), &printed);
  EXPECT_EQ(printed, "");
  EXPECT_THAT(std::string(status.message()), HasSubstr("the decoder gave up: IDAT"));
  EXPECT_EQ(TakePngError(), "") << "an error is told once";
}

TEST(PngMessages, AWarningIsDropped) {
  std::string printed;
  EXPECT_TRUE(Decode(WithOddGamma(Png()), &printed).ok());
  EXPECT_EQ(printed, "");
}

TEST(PngMessages, AnErrorDoesNotStickToTheNextImage) {
  std::string printed;
  EXPECT_FALSE(Decode(Damaged(Png()), &printed).ok());
  EXPECT_TRUE(Decode(Png(), &printed).ok());
  // Another kind of file fails for reasons of its own.
  const std::string text = "no image at all";
  const absl::Status status = Decode({text.begin(), text.end()}, &printed);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("IDAT")));
}

}  // namespace
}  // namespace feedwater::server
