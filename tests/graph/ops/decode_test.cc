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

// mode: index, of which the codec's tests have all kinds of files.
class Indices : public ::testing::Test {
 protected:
  static Bytes Labels(int height, int width) {
    Bytes labels(static_cast<size_t>(height) * width);
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i * 7 % 251);
    return labels;
  }
  static Bytes Png(const Bytes& labels, int height, int width) {
    return EncodedPixels({labels.data(), {width, height}, 1}, ".png");
  }
  static constexpr const char* kIndex = "- decode: {mode: index}\n";
};

TEST_F(Indices, AreOneChannelOfTheNumbersInTheFile) {
  const Bytes labels = Labels(5, 4);
  TestRecord record;
  record.AddEncoded(Png(labels, 5, 4));
  for (const bool fuse : {true, false}) {
    const auto result =
        RunGraph(absl::StrCat(kIndex, "- center_crop: {size: [5, 4]}"), record, "[image]", 0, fuse);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0], labels);
  }
}

TEST_F(Indices, AreTheSameFusedAndOpByOp) {
  TestRecord record;
  record.AddEncoded(Png(Labels(40, 30), 40, 30));
  for (const char* rest :
       {"- random_resized_crop: {size: 16, interpolation: nearest}\n- random_horizontal_flip",
        "- random_crop: {size: 50, pad_if_needed: true, fill: 255}\n- random_vertical_flip",
        "- resize: {size: [20, 10]}\n- random_invert\n- cast: {dtype: float32}",
        "- random_horizontal_flip\n- center_crop: {size: 20}\n- layout"}) {
    for (int64_t id = 0; id < 5; ++id) {
      const auto fused = RunGraph(absl::StrCat(kIndex, rest), record, "[image]", id, true);
      const auto plain = RunGraph(absl::StrCat(kIndex, rest), record, "[image]", id, false);
      ASSERT_TRUE(fused.ok()) << fused.status() << rest;
      ASSERT_TRUE(plain.ok()) << plain.status() << rest;
      EXPECT_EQ(*fused, *plain) << rest;
    }
  }
}

TEST_F(Indices, MoveWithTheirImage) {
  Bytes labels(20 * 30), pixels;
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<uint8_t>(i * 3 % 256);
    pixels.insert(pixels.end(), 3, labels[i]);
  }
  const Bytes mask = Png(labels, 20, 30);
  TestRecord record;
  record.AddEncoded(EncodedPixels({pixels.data(), {30, 20}, 3}, ".png"));
  record.Add("masks", kEncodedSpec,
             {DType::kUInt8, Layout::kEncoded, {static_cast<int64_t>(mask.size())}}, mask);
  const auto result = RunGraph(
      "- decode\n- decode: {in: masks, out: mask, mode: index}\n"
      "- random_crop: {in: [image, mask], size: 11}\n"
      "- random_horizontal_flip: {in: [image, mask], p: 1}",
      record, "[image, mask]", 3);
  ASSERT_TRUE(result.ok()) << result.status();
  const Bytes& image = (*result)[0];
  ASSERT_EQ((*result)[1].size(), 11u * 11);
  for (size_t i = 0; i < (*result)[1].size(); ++i) EXPECT_EQ((*result)[1][i], image[3 * i]);
}

TEST_F(Indices, OfAnotherImageAreAnErrorOfTheSampleWithTheCure) {
  for (const char* extension : {".jpg", ".png", ".bmp"}) {
    TestRecord record;
    record.AddEncoded(EncodedImage(8, 8, extension));
    for (const bool fuse : {true, false}) {
      const auto result =
          RunGraph(absl::StrCat(kIndex, "- center_crop: {size: 4}"), record, "[image]", 0, fuse);
      ASSERT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
      EXPECT_THAT(std::string(result.status().message()),
                  ::testing::AllOf(HasSubstr("decode"), HasSubstr("mode RGB")));
    }
  }
}

TEST_F(Indices, AreNotMadeOfCoefficients) {
  TestRecord record;
  record.AddEncoded({});
  const auto only_decoded = [&](const std::string& graph, const std::string& outputs) {
    const auto plan = MakePlan(PipelineText(graph, outputs), record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() && (*plan)->OnlyDecoded(0);
  };
  const std::string crop = "- center_crop: {in: [image, mask], size: 8}\n";
  EXPECT_TRUE(only_decoded("- decode\n- decode: {out: mask}\n" + crop, "[image, mask]"));
  EXPECT_FALSE(
      only_decoded("- decode\n- decode: {out: mask, mode: index}\n" + crop, "[image, mask]"));
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
