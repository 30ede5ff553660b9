// decode: pixels come out as RGB, HWC, of the image's own size, whatever the file's kind.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Decode, APngOfTwoPixelsComesOutAsRgb) {
  const Bytes pixels = {10, 20, 30, 40, 50, 60};
  TestRecord record;
  record.AddEncoded(EncodedPixels({pixels.data(), {2, 1}, 3}, ".png"));
  const auto result = RunGraph("- decode\n- center_crop: {size: [1, 2]}", record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0], ElementsAre(10, 20, 30, 40, 50, 60));
}

TEST(Decode, AGreyImageHasThreeEqualChannels) {
  const Bytes pixels = {77};
  TestRecord record;
  record.AddEncoded(EncodedPixels({pixels.data(), {1, 1}, 1}, ".png"));
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

// fast_scale and what follows decode.
class FastScale : public ::testing::Test {
 protected:
  FastScale() { record_.AddEncoded(EncodedImage(150, 201, ".jpg")); }

  std::vector<Bytes> Run(const std::string& decode, const std::string& rest,
                         const std::string& outputs = "[image]", bool fuse = true) {
    const auto result =
        RunGraph(absl::StrCat("- decode", decode, "\n", rest), record_, outputs, 7, fuse);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : std::vector<Bytes>();
  }
  bool IsExact(const std::string& rest, const std::string& outputs = "[image]", bool fuse = true) {
    return Run(kFast, rest, outputs, fuse) == Run("", rest, outputs, fuse);
  }

  static constexpr const char* kFast = ": {fast_scale: true}";
  TestRecord record_;
};

TEST_F(FastScale, IsWhatTheCodecGivesForTheFusedGeometry) {
  const Tensor& file = record_.record()->fields[0];
  Geometry geometry;
  geometry.crop = {0, 0, 201, 150};
  geometry.scaled = {60, 40};
  geometry.window = {8, 4, 44, 32};
  geometry.fast_scale = true;
  Bytes expected(44 * 32 * 3);
  ImageWorkspace workspace;
  ASSERT_TRUE(DecodeInto({file.data, file.bytes()}, false, ImageLimits(), geometry, PixelFormat(),
                         reinterpret_cast<std::byte*>(expected.data()), workspace)
                  .ok());
  const std::string rest = "- resize: {size: [40, 60]}\n- center_crop: {size: [32, 44]}";
  EXPECT_EQ(Run(kFast, rest)[0], expected);
  EXPECT_NE(Run("", rest)[0], expected);
}

TEST_F(FastScale, TakesEffectOnlyWhereAResizeToHalfOrLessIsFused) {
  EXPECT_FALSE(IsExact("- random_resized_crop: {size: 8, scale: [0.5, 1]}\n- layout"));
  EXPECT_FALSE(IsExact("- resize: {size: [40, 40]}\n- random_horizontal_flip: {p: 1}"));
  // Nothing to make smaller, not by half, or not of a kind that looks at all pixels.
  EXPECT_TRUE(IsExact("- center_crop: {size: 100}"));
  EXPECT_TRUE(IsExact("- resize: {size: [80, 80]}"));
  EXPECT_TRUE(IsExact("- resize: {size: [40, 40], interpolation: nearest}"));
  // Not fused: somebody else needs the pixels, a flip or a crop that may pad comes first, or fusing
  // is switched off.
  EXPECT_TRUE(
      IsExact("- resize: {size: [40, 40], out: a}\n- resize: {size: [30, 30], out: b}", "[a, b]"));
  EXPECT_TRUE(IsExact("- random_horizontal_flip: {p: 1}\n- resize: {size: [40, 40]}"));
  EXPECT_TRUE(IsExact("- center_crop: {size: 100}\n- resize: {size: [40, 40]}"));
  EXPECT_TRUE(IsExact("- resize: {size: [40, 40]}", "[image]", /*fuse=*/false));
}

}  // namespace
}  // namespace feedwater::server
