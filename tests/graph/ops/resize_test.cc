// resize: sizes follow torchvision's rule, pixels Pillow's filters.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 4x4 grey, 0, 16, ... 240.
Bytes Ramp() {
  Bytes pixels(16);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(16 * i);
  return pixels;
}

void ExpectNear(const Bytes& got, const std::vector<int>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1) << "at " << i;
}

// The expected numbers are Pillow 10's: Image.resize((2, 2), filter) and Image.resize((6, 3),
// filter).
TEST(Resize, DownscalingIsPillowsWithinOne) {
  ExpectNear(RunOnPixels("- resize: {size: [2, 2]}", 4, 4, 1, Ramp()), {57, 83, 157, 183});
  ExpectNear(RunOnPixels("- resize: {size: [2, 2], interpolation: bicubic}", 4, 4, 1, Ramp()),
             {47, 77, 163, 193});
  EXPECT_THAT(RunOnPixels("- resize: {size: [2, 2], interpolation: nearest}", 4, 4, 1, Ramp()),
              ElementsAre(80, 112, 208, 240));
}

TEST(Resize, WideningOneAxisAndNarrowingTheOtherIsPillowsWithinOne) {
  ExpectNear(RunOnPixels("- resize: {size: [3, 6]}", 4, 4, 1, Ramp()),
             {19, 27, 38, 48, 59, 67, 96, 104, 115, 125, 136, 144, 173, 181, 192, 202, 213, 221});
  ExpectNear(RunOnPixels("- resize: {size: [3, 6], interpolation: bicubic}", 4, 4, 1, Ramp()),
             {11, 19, 31, 41, 53, 61, 95, 103, 115, 125, 137, 145, 179, 187, 199, 209, 221, 229});
}

TEST(Resize, OpenCvsLinearHasTwoTaps) {
  // Halving with OpenCV's pixel-centre rule takes the mean of each 2x2 block.
  ExpectNear(RunOnPixels("- resize: {size: [2, 2], interpolation: opencv_linear}", 4, 4, 1, Ramp()),
             {40, 72, 168, 200});
}

// The spec that the planner settles for a known input size tells the rule's result.
std::string SettledSize(const std::string& op, int64_t height, int64_t width) {
  TestRecord record;
  record.AddPixels(height, width, 1, Bytes(static_cast<size_t>(height * width)));
  const auto plan = MakePlan(PipelineText(op, "[image]"), record.fields());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? (*plan)->outputs()[0].spec.ToString() : "";
}

TEST(Resize, OneNumberScalesTheShorterSide) {
  EXPECT_EQ(SettledSize("- resize: {size: 256}", 375, 500),
            "uint8[256,341,1] HWC");  // int(256 * 500 / 375)
  EXPECT_EQ(SettledSize("- resize: {size: 256}", 500, 375), "uint8[341,256,1] HWC");
  EXPECT_EQ(SettledSize("- resize: {size: 7}", 3, 3), "uint8[7,7,1] HWC");
  EXPECT_EQ(SettledSize("- resize: {size: 8}", 1, 100), "uint8[8,800,1] HWC");
}

TEST(Resize, MaxSizeLimitsTheLongerSide) {
  EXPECT_EQ(SettledSize("- resize: {size: 8, max_size: 20}", 10, 100),
            "uint8[2,20,1] HWC");  // int(20 * 8 / 80)
  EXPECT_EQ(SettledSize("- resize: {size: 8, max_size: 20}", 10, 20), "uint8[8,16,1] HWC");
}

TEST(Resize, AnImageTooNarrowForMaxSizeIsAnErrorOfTheSample) {
  TestRecord record;
  record.AddEncoded(EncodedImage(1, 900, ".png"));
  const auto result =
      RunGraph("- decode\n- resize: {size: 4, max_size: 5}\n- center_crop: {size: 4}", record);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("too narrow"));
}

TEST(Resize, AResultOverMaxPixelsIsAnErrorOfTheSample) {
  TestRecord record;
  record.AddEncoded(EncodedImage(1, 3000, ".png"));
  const auto result =
      RunGraph("- decode\n- resize: {size: 32768}\n- center_crop: {size: 4}", record);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("max_pixels"));
}

TEST(Resize, AMaskBesideTheImageMayHaveItsOwnInterpolation) {
  TestRecord record;
  record.AddPixels(4, 4, 1, Ramp()).Add("mask", PixelSpec(4, 4, 1), PixelSpec(4, 4, 1), Ramp());
  const auto result =
      RunGraph("- resize: {in: [image, mask], size: [2, 2], interpolation: [bilinear, nearest]}",
               record, "[image, mask]");
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectNear((*result)[0], {57, 83, 157, 183});
  EXPECT_THAT((*result)[1], ElementsAre(80, 112, 208, 240));
}

TEST(Resize, ADepthMapIsNearestAndNothingElse) {
  TestRecord record;
  const TensorSpec depth{DType::kUInt16, Layout::kPlain, {4, 4}};
  record.AddPixels(4, 4, 1, Ramp()).Add("depth", depth, depth, Bytes(32));
  const auto resize = [&](const std::string& interpolation) {
    return RunGraph(absl::StrCat("- resize: {in: [image, depth], size: [2, 2], interpolation: ",
                                 interpolation, "}"),
                    record, "[image, depth]")
        .status();
  };
  EXPECT_THAT(std::string(resize("[bilinear, bilinear]").message()),
              HasSubstr("'interpolation' must have 'nearest' for 'depth', which is uint16[4,4]"));
  EXPECT_TRUE(resize("[bilinear, nearest]").ok());
  EXPECT_TRUE(resize("bilinear").ok());
}

}  // namespace
}  // namespace feedwater::server
