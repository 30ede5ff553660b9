// What the planner fuses and what it leaves alone, and that fused and unfused graphs give the same
// bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/graph/plan.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kNormalize =
    "- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}";

std::vector<std::string> Steps(const std::string& graph, const std::string& outputs = "[image]",
                               bool fuse = true, const std::string& more = "") {
  const std::vector<FieldSpec> fields = {{"data", kEncodedSpec, ""},
                                         {"label", kLabelSpec, ""},
                                         {"grey", PixelSpec(28, 28, 1), ""},
                                         {"rgb", PixelSpec(32, 32, 3), ""}};
  const auto plan = MakePlan(PipelineText(graph, outputs, more), fields, fuse);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? (*plan)->Describe() : std::vector<std::string>{};
}

TEST(Fusion, TheTrainingPipelineIsOneStep) {
  EXPECT_THAT(
      Steps(absl::StrCat("- decode\n- random_resized_crop: {size: 224}\n- random_horizontal_flip\n",
                         kNormalize)),
      ElementsAre("decode+random_resized_crop+random_horizontal_flip+normalize -> image "
                  "float32[3,224,224] CHW"));
}

TEST(Fusion, TheValidationPipelineIsOneStepAndTheLabelACopy) {
  EXPECT_THAT(Steps(absl::StrCat("- decode\n- resize: {size: 256}\n- center_crop: {size: 224}\n",
                                 kNormalize),
                    "[image, label]"),
              ElementsAre("decode+resize+center_crop+normalize -> image float32[3,224,224] CHW",
                          "copy -> label int64[]"));
}

TEST(Fusion, StoredPixelsAreFusedWithoutDecode) {
  EXPECT_THAT(
      Steps("- random_crop: {in: rgb, out: image, size: 32, padding: 4}\n- "
            "random_horizontal_flip\n- cast\n- layout"),
      ElementsAre("random_crop+random_horizontal_flip+cast+layout -> image float32[3,32,32] CHW"));
}

TEST(Fusion, ASecondResizeBeginsANewStep) {
  EXPECT_THAT(Steps("- decode\n- resize: {size: 256}\n- random_resized_crop: {size: 8}\n- "
                    "random_vertical_flip"),
              ElementsAre("decode+resize -> image uint8[?,?,3] HWC",
                          "random_resized_crop+random_vertical_flip -> image uint8[8,8,3] HWC"));
}

TEST(Fusion, AResizeAfterAFlipOrAPaddingBeginsANewStep) {
  EXPECT_EQ(Steps("- decode\n- random_horizontal_flip\n- resize: {size: [8, 8]}").size(), 2u);
  EXPECT_EQ(Steps("- decode\n- center_crop: {size: 30}\n- resize: {size: [8, 8]}").size(), 2u);
  EXPECT_EQ(Steps("- decode\n- random_crop: {size: 30}\n- resize: {size: [8, 8]}").size(), 1u);
}

TEST(Fusion, PaddingTwiceOrOfNormalizedValuesIsNotFused) {
  EXPECT_EQ(Steps("- decode\n- center_crop: {size: 30}\n- center_crop: {size: 40}").size(), 2u);
  EXPECT_EQ(Steps(absl::StrCat("- decode\n", kNormalize, "\n- center_crop: {size: 40}")).size(),
            2u);
}

TEST(Fusion, CropsAndFlipsMayFollowConversions) {
  EXPECT_EQ(Steps(absl::StrCat("- decode\n- resize: {size: [9, 9]}\n", kNormalize,
                               "\n- random_crop: {size: 8}\n- random_horizontal_flip"))
                .size(),
            1u);
}

TEST(Fusion, WhatWouldRoundTwiceIsNotFused) {
  const std::string head = "- decode\n- resize: {size: [9, 9]}\n";
  EXPECT_EQ(Steps(absl::StrCat(head, kNormalize, "\n- cast: {dtype: float16}")).size(), 1u);
  EXPECT_EQ(Steps(absl::StrCat(head, kNormalize, "\n- cast: {dtype: uint8}")).size(), 2u);
  EXPECT_EQ(
      Steps(absl::StrCat(
                head,
                "- normalize: {mean: [0], std: [1], dtype: bfloat16}\n- cast: {dtype: float32}"))
          .size(),
      2u);
  EXPECT_EQ(Steps(absl::StrCat(head, "- cast: {dtype: bfloat16}\n", kNormalize)).size(), 1u);
  EXPECT_EQ(Steps(absl::StrCat(head, kNormalize, "\n", kNormalize)).size(), 2u);
  EXPECT_EQ(Steps(absl::StrCat(head, "- cast: {dtype: int32}")).size(), 2u);
}

TEST(Fusion, AnOpThatCannotBeFusedStandsAlone) {
  EXPECT_THAT(
      Steps(absl::StrCat("- decode\n- random_resized_crop: {size: 8}\n- python: {name: s}\n",
                         kNormalize)),
      ElementsAre("decode+random_resized_crop -> image uint8[8,8,3] HWC",
                  "python -> image uint8[8,8,3] HWC", "normalize -> image float32[3,8,8] CHW"));
}

TEST(Fusion, ColourOpsAreFusedWithWhatIsAroundThem) {
  const std::string head = "- decode\n- random_resized_crop: {size: 8}\n- ";
  EXPECT_THAT(Steps(absl::StrCat(head, "color_jitter: {hue: 0.1, contrast: 0.4}\n", kNormalize)),
              ElementsAre("decode+random_resized_crop+color_jitter+normalize -> image "
                          "float32[3,8,8] CHW"));
  EXPECT_THAT(Steps("- random_invert: {in: rgb, out: image}\n- random_grayscale\n- layout"),
              ElementsAre("random_invert+random_grayscale+layout -> image uint8[3,32,32] CHW"));
  // Nothing is resampled or padded after its colours have changed, or has to see padding.
  EXPECT_EQ(Steps("- decode\n- color_jitter: {hue: 0.1}\n- resize: {size: [8, 8]}").size(), 2u);
  EXPECT_EQ(Steps("- decode\n- random_invert\n- center_crop: {size: 40}").size(), 2u);
  EXPECT_EQ(Steps("- decode\n- center_crop: {size: 40}\n- random_invert").size(), 1u);
  EXPECT_EQ(Steps("- decode\n- center_crop: {size: 40}\n- random_equalize").size(), 2u);
  // A crop or flip may follow what looks at each pixel by itself.
  EXPECT_EQ(Steps("- decode\n- resize: {size: [9, 9]}\n- random_invert\n- random_crop: {size: 8}\n"
                  "- random_horizontal_flip")
                .size(),
            1u);
  EXPECT_EQ(Steps("- decode\n- resize: {size: [9, 9]}\n- random_equalize\n- random_crop: {size: 8}")
                .size(),
            2u);
  EXPECT_EQ(Steps(absl::StrCat(head,
                               "normalize: {mean: [1], std: [2], dtype: uint8, layout: HWC}\n- "
                               "random_invert"))
                .size(),
            2u);
  EXPECT_EQ(Steps("- grayscale: {in: grey, out: image, num_output_channels: 3}\n- layout").size(),
            2u);
}

TEST(Fusion, TwoViewsOfOneImageDecodeItOnce) {
  EXPECT_THAT(
      Steps(
          "- decode\n- random_resized_crop: {out: a, size: 8}\n- random_horizontal_flip: {in: a}\n"
          "- random_resized_crop: {out: b, size: 8}",
          "[a, b]"),
      ElementsAre("decode(once, what 2 steps take of it) -> image uint8[?,?,3] HWC",
                  "random_resized_crop+random_horizontal_flip -> a uint8[8,8,3] HWC",
                  "random_resized_crop -> b uint8[8,8,3] HWC"));
}

TEST(Describe, NamesFastScaleAndWhatKeepsItFromItsResize) {
  EXPECT_THAT(Steps("- decode: {fast_scale: true}\n- random_resized_crop: {size: 8}"),
              ElementsAre("decode(fast_scale)+random_resized_crop -> image uint8[8,8,3] HWC"));
  EXPECT_THAT(
      Steps("- decode: {fast_scale: true}\n- color_jitter: {hue: 0.1}\n- resize: {size: [8, 8]}"),
      ElementsAre("decode(fast_scale without effect: no resize in this step, read by color_jitter)"
                  "+color_jitter -> image uint8[?,?,3] HWC",
                  "resize -> image uint8[8,8,3] HWC"));
  EXPECT_THAT(
      Steps("- decode: {fast_scale: true}\n- resize: {out: a, size: [8, 8]}\n"
            "- resize: {in: image, out: b, size: [4, 4]}",
            "[a, b]")[0],
      HasSubstr("decode(fast_scale without effect: no resize in this step, read by resize and "
                "resize) -> image"));
  EXPECT_THAT(Steps("- decode: {fast_scale: true}\n- center_crop: {size: 8}")[0],
              HasSubstr("(fast_scale without effect: no resize in this step)+center_crop"));
}

TEST(Fusion, AFieldThatIsAlsoAnOutputIsWritten) {
  EXPECT_THAT(Steps("- decode\n- center_crop: {size: 8}\n- random_horizontal_flip: {out: mirrored}",
                    "[image, mirrored]"),
              ElementsAre("decode+center_crop -> image uint8[8,8,3] HWC",
                          "random_horizontal_flip -> mirrored uint8[8,8,3] HWC"));
}

TEST(Fusion, OpsThatNobodyNeedsAreLeftOut) {
  EXPECT_THAT(Steps("- decode\n- center_crop: {size: 8}\n- one_hot", "[image]"),
              ElementsAre("decode+center_crop -> image uint8[8,8,3] HWC"));
  EXPECT_THAT(Steps("- decode\n- one_hot", "[label]"), ElementsAre("one_hot -> label float32[10]"));
  EXPECT_THAT(Steps("", "[grey, label]", true,
                    "batch: {graph: [{mixup: {in: [grey, label], out: [x, y]}}]}\n"),
              ElementsAre("copy -> label int64[]", "copy -> grey uint8[28,28,1] HWC"));
}

TEST(Fusion, CanBeSwitchedOff) {
  EXPECT_EQ(
      Steps(absl::StrCat("- decode\n- random_resized_crop: {size: 8}\n- random_horizontal_flip\n",
                         kNormalize),
            "[image]", false)
          .size(),
      4u);
}

// Fused and unfused, for graphs of every shape, images of odd sizes and formats, and many samples.
// Not for decode's fast_scale, which asks for what only the fused ops give (decode_test).
TEST(Fusion, ChangesNoByte) {
  const std::vector<std::string> graphs = {
      absl::StrCat("- decode\n- random_resized_crop: {size: [24, 20]}\n- random_horizontal_flip\n",
                   kNormalize),
      absl::StrCat("- decode\n- random_resized_crop: {size: 16, interpolation: bicubic}\n- "
                   "random_vertical_flip\n",
                   kNormalize),
      "- decode\n- random_resized_crop: {size: 16, interpolation: nearest}\n- "
      "random_horizontal_flip\n- random_vertical_flip",
      "- decode\n- random_resized_crop: {size: 16, interpolation: opencv_linear}",
      absl::StrCat("- decode\n- resize: {size: 40}\n- center_crop: {size: 32}\n", kNormalize),
      absl::StrCat("- decode\n- resize: {size: 20}\n- center_crop: {size: [31, 50]}\n- "
                   "random_horizontal_flip\n",
                   kNormalize),
      "- decode\n- random_horizontal_flip\n- random_crop: {size: [20, 30], pad_if_needed: true, "
      "fill: [1, 2, 3]}\n- random_vertical_flip",
      "- decode\n- random_crop: {size: [60, 70], padding: 80, fill: 9}\n- "
      "random_horizontal_flip\n- layout",
      "- decode\n- random_vertical_flip\n- center_crop: {size: 10}\n- random_horizontal_flip\n- "
      "random_crop: {size: 5}\n- cast\n- random_crop: {size: 3}",
      "- decode\n- center_crop: {size: 50}\n- random_crop: {size: 40}\n- resize: {size: [17, "
      "19]}\n- random_horizontal_flip",
      "- decode: {orientation: exif}\n- resize: {size: [12, 13], interpolation: bicubic}\n- "
      "normalize: {mean: [1], std: [2], dtype: float16, layout: HWC}",
      "- decode\n- center_crop: {size: 33}\n- normalize: {mean: [100], std: [3], dtype: uint8}\n- "
      "random_horizontal_flip",
      "- decode\n- center_crop: {size: 33}\n- cast: {dtype: bfloat16}\n- layout\n- "
      "random_vertical_flip",
      absl::StrCat("- decode\n- center_crop: {size: 33}\n", kNormalize,
                   "\n- random_crop: {size: 12}\n- cast: {dtype: float16}"),
      absl::StrCat("- decode\n- resize: {size: 30, max_size: 45}\n- color_jitter: {hue: 0.2, "
                   "contrast: 0.4}\n"
                   "- center_crop: {size: 28}\n- random_horizontal_flip\n",
                   kNormalize),
      absl::StrCat("- decode\n- random_resized_crop: {size: 24}\n- random_horizontal_flip\n"
                   "- color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}\n"
                   "- random_grayscale: {p: 0.3}\n- random_solarize: {threshold: 128}\n",
                   kNormalize),
      "- decode\n- center_crop: {size: 50}\n- random_invert\n- adjust_gamma: {gamma: 0.7}\n"
      "- lighting\n- random_crop: {size: 30}\n- random_vertical_flip",
      absl::StrCat(
          "- decode\n- resize: {size: [30, 20]}\n- random_equalize\n- random_autocontrast\n"
          "- adjust_contrast: {contrast_factor: 1.3}\n- random_posterize: {bits: 3}\n"
          "- random_channel_permutation\n",
          kNormalize),
      "- decode\n- resize: {size: [30, 20]}\n- random_photometric_distort\n- grayscale\n"
      "- random_autocontrast\n- adjust_brightness: {brightness_factor: 1.2}\n- cast: {dtype: "
      "float16}",
      "- decode\n- center_crop: {size: [41, 77]}\n- random_equalize\n- random_invert",
      "- decode\n- random_resized_crop: {size: 17, interpolation: opencv_linear}\n"
      "- to_color_space: {space: lab}\n- normalize: {mean: [1], std: [2], layout: HWC}",
      "- decode\n- resize: {size: [12, 13]}\n- adjust_hue: {hue_factor: 0.3}\n"
      "- adjust_saturation: {saturation_factor: 1.7}\n- to_color_space: {space: bgr}\n- layout",
  };
  const std::vector<Bytes> files = {EncodedImage(97, 131, ".jpg"), EncodedImage(64, 64, ".jpg"),
                                    EncodedImage(31, 45, ".png"),  EncodedImage(120, 33, ".bmp"),
                                    EncodedImage(1, 1, ".png"),    EncodedImage(17, 1, ".jpg")};
  SampleWorkspace workspace;
  for (const std::string& graph : graphs) {
    for (size_t f = 0; f < files.size(); ++f) {
      TestRecord record;
      record.AddEncoded(files[f]);
      const auto fused = MakePlan(PipelineText(graph, "[image]"), record.fields(), true);
      const auto plain = MakePlan(PipelineText(graph, "[image]"), record.fields(), false);
      ASSERT_TRUE(fused.ok()) << fused.status();
      ASSERT_TRUE(plain.ok()) << plain.status();
      ASSERT_LT((*fused)->Describe().size(), (*plain)->Describe().size() + 1);
      for (int64_t id = 0; id < 12; ++id) {
        const auto a = RunPlan(**fused, record, id), b = RunPlan(**plain, record, id);
        ASSERT_EQ(a.ok(), b.ok()) << graph << "\nfile " << f << " sample " << id << "\n"
                                  << a.status() << "\n"
                                  << b.status();
        if (a.ok()) {
          ASSERT_EQ(*a, *b) << graph << "\nfile " << f << " sample " << id;
        }
      }
    }
  }
}

TEST(Fusion, ChangesNoByteOfStoredPixels) {
  const std::vector<std::string> graphs = {
      "- random_crop: {size: 32, padding: 4}\n- random_horizontal_flip\n- normalize: {mean: [125], "
      "std: [60]}",
      "- random_resized_crop: {size: 20}\n- random_horizontal_flip\n- cast\n- layout",
      "- center_crop: {size: 40}\n- random_vertical_flip\n- cast: {dtype: float16}",
      "- layout\n- random_horizontal_flip\n- random_crop: {size: 7}\n- cast",
      "- random_horizontal_flip\n- random_invert\n- random_equalize\n- color_jitter: {contrast: "
      "0.5}\n- normalize: {mean: [125], std: [60]}",
      "- random_crop: {size: 32, padding: 4}\n- random_autocontrast\n- random_solarize: "
      "{threshold: "
      "9}",
      "- color_jitter: {brightness: 0.5, hue: 0.2}\n- grayscale\n- random_posterize: {bits: 2}",
  };
  for (int64_t channels : {1, 3}) {
    for (const std::string& graph : graphs) {
      TestRecord record;
      record.AddPixels(32, 32, channels, PatternPixels(32, 32, channels));
      for (int64_t id = 0; id < 30; ++id) {
        const auto fused = RunGraph(graph, record, "[image]", id, true),
                   plain = RunGraph(graph, record, "[image]", id, false);
        ASSERT_TRUE(fused.ok()) << fused.status();
        ASSERT_TRUE(plain.ok()) << plain.status();
        ASSERT_EQ(*fused, *plain) << graph << " sample " << id;
      }
    }
  }
}

}  // namespace
}  // namespace feedwater::server
