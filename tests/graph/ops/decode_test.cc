// decode: pixels come out as RGB, HWC, of the image's own size, whatever the file's kind.
#include <gmock/gmock.h>

#include <opencv2/imgproc.hpp>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Bytes Encode(const cv::Mat& image, const std::string& extension) {
  Bytes file;
  cv::imencode(extension, image, file);
  return file;
}

TEST(Decode, APngOfTwoPixelsComesOutAsRgb) {
  cv::Mat image(1, 2, CV_8UC3);  // OpenCV's order is BGR
  image.at<cv::Vec3b>(0, 0) = {30, 20, 10};
  image.at<cv::Vec3b>(0, 1) = {60, 50, 40};
  TestRecord record;
  record.AddEncoded(Encode(image, ".png"));
  const auto result = RunGraph("- decode\n- center_crop: {size: [1, 2]}", record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0], ElementsAre(10, 20, 30, 40, 50, 60));
}

TEST(Decode, AGreyImageHasThreeEqualChannels) {
  cv::Mat image(1, 1, CV_8UC1, cv::Scalar(77));
  TestRecord record;
  record.AddEncoded(Encode(image, ".png"));
  const auto result = RunGraph("- decode\n- center_crop: {size: 1}", record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0], ElementsAre(77, 77, 77));
}

TEST(Decode, GarbageIsAnErrorOfTheSampleThatNamesTheOp) {
  for (const Bytes& file :
       {Bytes{}, Bytes{1, 2, 3}, Bytes(5000, 0), Bytes{0xff, 0xd8, 0xff, 0xe0}}) {
    for (bool fuse : {true, false}) {
      TestRecord record;
      record.AddEncoded(file);
      const auto result =
          RunGraph("- decode\n- center_crop: {size: 4}", record, "[image]", 0, fuse);
      ASSERT_FALSE(result.ok());
      EXPECT_THAT(std::string(result.status().message()), HasSubstr("decode"));
      EXPECT_TRUE(absl::IsInvalidArgument(result.status()) || absl::IsDataLoss(result.status()))
          << result.status();
    }
  }
}

TEST(Decode, AnImageOverTheLimitIsRefused) {
  TestRecord record;
  record.AddEncoded(EncodedImage(40, 50, ".jpg"));
  const auto plan = MakePlan(
      PipelineText("- decode\n- center_crop: {size: 4}", "[image]", "limits: {max_pixels: 1999}\n"),
      record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(absl::IsInvalidArgument(RunPlan(**plan, record).status()));
  const auto roomy = MakePlan(
      PipelineText("- decode\n- center_crop: {size: 4}", "[image]", "limits: {max_pixels: 2000}\n"),
      record.fields());
  EXPECT_TRUE(RunPlan(**roomy, record).ok());
}

}  // namespace
}  // namespace feedwater::server
