// One decode for several views: what of the image is decoded, and that the bytes are those of
// decoding all of it.
#include "server/graph/shared_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- what of the image

constexpr Size kSize = {1000, 800};

TEST(SharedDecode, TheSmallestRectangleWithAllPartsIsDecoded) {
  for (const bool any_part : {false, true}) {
    const Rect overlapping[] = {{100, 200, 300, 300}, {150, 100, 300, 350}};
    EXPECT_EQ(PartToDecode(kSize, overlapping, any_part), (Rect{100, 100, 350, 400}));
    const Rect within[] = {{0, 0, 1000, 800}, {10, 10, 5, 5}};
    EXPECT_EQ(PartToDecode(kSize, within, any_part), (Rect{0, 0, 1000, 800}));
    EXPECT_EQ(PartToDecode(kSize, {}, any_part), (Rect{0, 0, 1000, 800}));
  }
}

TEST(SharedDecode, PartsFarFromEachOtherAreDecodedOneByOneWhereEachCostsItsOwnAlone) {
  const Rect corners[] = {{0, 0, 100, 100}, {900, 700, 100, 100}};
  EXPECT_EQ(PartToDecode(kSize, corners, true), Rect());
  EXPECT_EQ(PartToDecode(kSize, corners, false), (Rect{0, 0, 1000, 800}));
}

// --- the same bytes

std::string CoefficientsOf(const Bytes& jpeg) {
  ImageWorkspace workspace;
  Bytes padded = jpeg;
  padded.resize(jpeg.size() + kReadPadding);
  const auto packed = PackCoefficients(
      {reinterpret_cast<const std::byte*>(padded.data()), jpeg.size()}, ImageLimits(), workspace);
  return {reinterpret_cast<const char*>(packed.data()), packed.size()};
}

TestRecord RecordOf(Bytes file) {
  TestRecord record;
  record.AddEncoded(std::move(file));
  return record;
}

struct Case {
  const char* name;
  std::string graph;
  std::string outputs = "[a, b]";
};

const Case kCases[] = {
    {"simclr",
     "- decode\n- random_resized_crop: {out: a, size: 24}\n- random_horizontal_flip: {in: a}\n"
     "- color_jitter: {in: a, contrast: 0.4, hue: 0.1}\n- layout: {in: a}\n"
     "- random_resized_crop: {out: b, size: 16, interpolation: bicubic}"},
    {"far apart",
     "- decode\n- random_crop: {out: a, size: 10}\n- random_crop: {out: b, size: 10}\n"
     "- random_vertical_flip: {in: b}\n- cast: {in: b, dtype: float32}"},
    {"a range",
     "- decode\n- random_crop: {out: \"view_{0..3}\", size: 20}\n"
     "- random_equalize: {in: \"view_{0..3}\", p: 1}",
     "[\"view_{0..3}\"]"},
    {"with the whole image",
     "- decode\n- resize: {out: a, size: [12, 14]}\n- random_crop: {out: b, size: 8}"},
    {"upright",
     "- decode: {orientation: exif}\n- random_resized_crop: {out: a, size: 24}\n"
     "- center_crop: {out: b, size: 40}"},
    {"with padding",
     "- decode\n- random_crop: {out: a, size: 30, padding: 25, fill: 9}\n"
     "- random_crop: {out: b, size: 12}"},
    {"OpenCV's resampling",
     "- decode\n- random_resized_crop: {out: a, size: 24, interpolation: opencv_linear}\n"
     "- random_resized_crop: {out: b, size: 24, interpolation: nearest}"},
    {"fast_scale, which has no effect",
     "- decode: {fast_scale: true}\n- random_resized_crop: {out: a, size: 8}\n"
     "- random_resized_crop: {out: b, size: 8}"},
    {"other ops behind them",
     "- decode\n- random_crop: {out: a, size: 16}\n- random_crop: {out: b, size: 16}\n"
     "- gaussian_blur: {in: a, kernel_size: 3}\n- gaussian_noise: {in: b}"},
    {"behind a cut",
     "- decode\n- center_crop: {out: a, size: 16}\n- random_crop: {out: b, size: 16}"},
};

TEST(SharedDecode, TheBytesAreThoseOfTheWholeImage) {
  const Bytes jpeg = EncodedImage(97, 131, ".jpg");
  const std::string coefficients = CoefficientsOf(jpeg);
  ASSERT_FALSE(coefficients.empty());
  const std::pair<const char*, Bytes> files[] = {
      {"JPEG", jpeg},
      {"coefficients", Bytes(coefficients.begin(), coefficients.end())},
      {"PNG", EncodedImage(97, 131, ".png")},
  };
  for (const Case& one : kCases) {
    for (const auto& [kind, file] : files) {
      TestRecord record = RecordOf(file);
      const std::string text = PipelineText(one.graph, one.outputs);
      const auto fused = MakePlan(text, record.fields()),
                 plain = MakePlan(text, record.fields(), /*fuse=*/false);
      ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
      for (int64_t sample = 0; sample < 24; ++sample) {
        const auto expected = RunPlan(**plain, record, sample);
        const auto given = RunPlan(**fused, record, sample);
        ASSERT_TRUE(expected.ok() && given.ok()) << expected.status() << given.status();
        EXPECT_EQ(*given, *expected) << one.name << ", " << kind << ", sample " << sample;
        const auto halves = RunPlanInHalves(**fused, record, sample);
        ASSERT_TRUE(halves.ok()) << halves.status();
        EXPECT_EQ(*halves, *expected) << one.name << " in halves, " << kind;
      }
    }
  }
}

TEST(SharedDecode, MasksOfIndicesHaveViewsToo) {
  Bytes labels(60 * 80);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i * i / 7);
  TestRecord record = RecordOf(EncodedPixels({labels.data(), {80, 60}, 1}, ".png"));
  const std::string text = PipelineText(
      "- decode: {mode: index, out: mask}\n- random_crop: {in: mask, out: a, size: 20}\n"
      "- random_crop: {in: mask, out: b, size: 20}",
      "[a, b]");
  const auto fused = MakePlan(text, record.fields()),
             plain = MakePlan(text, record.fields(), /*fuse=*/false);
  ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
  for (int64_t sample = 0; sample < 8; ++sample)
    EXPECT_EQ(*RunPlan(**fused, record, sample), *RunPlan(**plain, record, sample));
}

// --- what it does for it

std::vector<std::string> Steps(const std::string& graph) {
  const auto plan = MakePlan(PipelineText(graph, "[a, b]"), {{"data", kEncodedSpec, ""}});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? (*plan)->Describe() : std::vector<std::string>{};
}

TEST(SharedDecode, TheDescriptionSaysForHowManyStepsAPartIsDecoded) {
  const std::string views = "- random_crop: {out: a, size: 8}\n- random_crop: {out: b, size: 8}\n";
  EXPECT_THAT(Steps("- decode\n" + views)[0],
              HasSubstr("decode(once, what 2 steps take of it) -> image"));
  // What looks at all of the image gets it.
  EXPECT_THAT(Steps("- decode\n- gaussian_blur: {kernel_size: 3}\n" + views)[0],
              HasSubstr("decode -> image"));
  EXPECT_THAT(Steps("- decode\n- random_crop: {out: a, size: 8}\n- random_equalize: {out: b}\n"
                    "- center_crop: {in: b, size: 8}")[0],
              HasSubstr("decode -> image"));
  // OpenCV's copies would have to fit beside the decoder.
  EXPECT_THAT(Steps("- decode\n- random_crop: {out: a, size: 8}\n"
                    "- resize: {out: b, size: [8, 8], interpolation: opencv_linear}")[0],
              HasSubstr("decode -> image"));
}

// The end of the file is missing: what stands above is decoded, and the rest not even looked at.
TEST(SharedDecode, NothingIsDecodedThatNobodyTakes) {
  Bytes file = EncodedImage(400, 400, ".jpg");
  file.resize(file.size() * 3 / 4);
  TestRecord record = RecordOf(file);
  const std::string text = PipelineText(
      "- decode\n- center_crop: {out: a, size: 20}\n- center_crop: {out: b, size: [8, 390]}",
      "[a, b]");
  const auto fused = MakePlan(text, record.fields()),
             plain = MakePlan(text, record.fields(), /*fuse=*/false);
  ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
  EXPECT_FALSE(RunPlan(**plain, record).ok());
  const auto given = RunPlan(**fused, record);
  EXPECT_TRUE(given.ok()) << given.status();
}

TEST(SharedDecode, AViewThatTheImageDoesNotFitSaysSo) {
  TestRecord record = RecordOf(EncodedImage(20, 30, ".jpg"));
  const std::string text = PipelineText(
      "- decode\n- random_crop: {out: a, size: 16}\n- random_crop: {out: b, size: 64}", "[a, b]");
  const auto fused = MakePlan(text, record.fields()),
             plain = MakePlan(text, record.fields(), /*fuse=*/false);
  ASSERT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
  const absl::Status status = RunPlan(**fused, record).status();
  EXPECT_EQ(status, RunPlan(**plain, record).status());
  EXPECT_THAT(std::string(status.message()), HasSubstr("random_crop"));
}

}  // namespace
}  // namespace feedwater::server
