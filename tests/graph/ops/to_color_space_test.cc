// to_color_space: what Pillow's convert and OpenCV's COLOR_RGB2Lab give.
#include <gmock/gmock.h>

#include <opencv2/imgproc.hpp>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

TEST(ToColorSpace, HsvIsPillows) {
  EXPECT_THAT(
      RunOnPixels("- to_color_space: {space: hsv}", 2, 3, 3, kPixels),
      ElementsAre(0, 0, 0, 0, 0, 255, 14, 191, 200, 88, 244, 240, 166, 233, 201, 42, 1, 128));
}

TEST(ToColorSpace, YcbcrIsPillows) {
  EXPECT_THAT(RunOnPixels("- to_color_space: {space: ycbcr}", 2, 3, 3, kPixels),
              ElementsAre(0, 128, 128, 255, 128, 128, 124, 86, 182, 147, 61, 30, 47, 214, 105, 127,
                          127, 128));
}

TEST(ToColorSpace, LabIsOpenCvs) {
  EXPECT_THAT(RunOnPixels("- to_color_space: {space: lab}", 2, 3, 3, kPixels),
              ElementsAre(0, 128, 128, 255, 128, 128, 137, 164, 173, 212, 47, 204, 72, 184, 44, 137,
                          128, 128));
}

TEST(ToColorSpace, BgrIsTheOtherWayRound) {
  EXPECT_THAT(RunOnPixels("- to_color_space: {space: bgr}", 1, 2, 3, {1, 2, 3, 4, 5, 6}),
              ElementsAre(3, 2, 1, 6, 5, 4));
}

TEST(ToColorSpace, LabOfTheWholeCubeIsOpenCvs) {
  // Every colour whose channels are multiples of 5.
  Bytes pixels;
  for (int i = 0; i < 52 * 52 * 52; ++i)
    for (int v : {i / 2704, i / 52 % 52, i % 52}) pixels.push_back(static_cast<uint8_t>(5 * v));
  cv::Mat lab;
  cv::cvtColor(cv::Mat(52 * 52, 52, CV_8UC3, pixels.data()), lab, cv::COLOR_RGB2Lab);
  const Bytes expected(lab.datastart, lab.dataend);
  EXPECT_EQ(RunOnPixels("- to_color_space: {space: lab}", 52 * 52, 52, 3, pixels), expected);
}

TEST(ToColorSpace, AGreyImageIsRefused) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {9, 200});
  const auto result = RunGraph("- to_color_space: {space: hsv}", record);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("takes images with 3 channels, but this one has 1; grayscale"));
}

}  // namespace
}  // namespace feedwater::server
