// five_crop: torchvision's order and places, of pixels and of planes, and what may stand around it.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

Bytes Crop(const Bytes& pixels, int64_t width, int64_t channels, Rect part) {
  Bytes crop;
  for (int y = part.y; y < part.y + part.height; ++y) {
    const auto from = pixels.begin() + (y * width + part.x) * channels;
    crop.insert(crop.end(), from, from + part.width * channels);
  }
  return crop;
}

TEST(FiveCrop, CornersClockLessThenTheMiddleRoundedAsPythonDoes) {
  for (const int64_t channels : {1, 3}) {
    // 5 less 2 leaves 3, whose half rounds to 2; 6 less 3 leaves 3, 2 again.
    const Bytes pixels = PatternPixels(5, 6, channels);
    Bytes expected;
    for (const Rect part :
         {Rect{0, 0, 3, 2}, {3, 0, 3, 2}, {0, 3, 3, 2}, {3, 3, 3, 2}, {2, 2, 3, 2}}) {
      const Bytes crop = Crop(pixels, 6, channels, part);
      expected.insert(expected.end(), crop.begin(), crop.end());
    }
    EXPECT_EQ(RunOnPixels("- five_crop: {size: [2, 3]}", 5, 6, channels, pixels), expected);
  }
}

TEST(FiveCrop, NormalizedPlanesGiveTheSameCropsAsPlanes) {
  const Bytes pixels = PatternPixels(6, 7, 3);
  const Bytes crops = RunOnPixels("- five_crop: {size: 4}", 6, 7, 3, pixels);
  const auto planes = As<float>(
      RunOnPixels("- normalize: {mean: [10], std: [2]}\n- five_crop: {size: 4}", 6, 7, 3, pixels));
  ASSERT_EQ(planes.size(), crops.size());
  for (size_t crop = 0; crop < 5; ++crop) {
    for (size_t i = 0; i < 16; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(planes[crop * 48 + c * 16 + i],
                  (static_cast<float>(crops[crop * 48 + 3 * i + c]) - 10) * 0.5f);
      }
    }
  }
}

TEST(FiveCrop, TheFieldHasAnAxisInFrontAndIsNoImage) {
  TestRecord record;
  record.AddPixels(6, 7, 3, PatternPixels(6, 7, 3));
  const auto plan = [&](const std::string& graph) {
    return MakePlan(PipelineText(graph, "[image]"), record.fields());
  };
  EXPECT_EQ((*plan("- five_crop: {size: [4, 5]}"))->outputs()[0].spec.ToString(), "uint8[5,4,5,3]");
  EXPECT_EQ((*plan("- layout\n- five_crop: {size: [4, 5]}"))->outputs()[0].spec.ToString(),
            "uint8[5,3,4,5]");
  EXPECT_EQ(
      (*plan("- five_crop: {size: 4}\n- cast: {dtype: float16}"))->outputs()[0].spec.ToString(),
      "float16[5,4,4,3]");
  const auto after = plan("- five_crop: {size: 4}\n- normalize: {mean: [0], std: [1]}");
  ASSERT_FALSE(after.ok());
  EXPECT_THAT(std::string(after.status().message()),
              AllOf(HasSubstr("test.yaml:5:"), HasSubstr("normalize")));
}

TEST(FiveCrop, ALargerCropThanTheImageIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(4, 9, 1, PatternPixels(4, 9, 1));
  for (const char* size : {"5", "[4, 10]"}) {
    const auto refused = RunGraph(absl::StrCat("- five_crop: {size: ", size, "}"), record);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("test.yaml:4:"), HasSubstr("more than the image's 4x9")));
  }
  TestRecord file;
  file.AddEncoded(EncodedImage(4, 9, ".png"));
  const auto bad = RunGraph("- decode\n- five_crop: {size: 5}", file);
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(bad.status()));
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("more than the image's 4x9"));
  for (const char* size : {"0", "[0, 3]", "40000", "-1", "2.5"})
    EXPECT_FALSE(RunGraph(absl::StrCat("- five_crop: {size: ", size, "}"), record).ok()) << size;
}

}  // namespace
}  // namespace feedwater::server
