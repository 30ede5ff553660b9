// color_jitter: Pillow's arithmetic, torchvision's ranges and order. The expected numbers are what
// Pillow gives for ImageEnhance.Brightness, Contrast and Color, and for torchvision's adjust_hue,
// on these six pixels.
#include <gmock/gmock.h>

#include <set>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

Bytes Jittered(const std::string& params) {
  return RunOnPixels("- color_jitter: {" + params + "}", 2, 3, 3, kPixels);
}

TEST(ColorJitter, BrightnessScales) {
  EXPECT_THAT(Jittered("brightness: [0.5, 0.5]"),
              ElementsAre(0, 0, 0, 127, 127, 127, 100, 50, 25, 5, 120, 15, 8, 17, 100, 64, 64, 63));
  EXPECT_THAT(
      Jittered("brightness: [1.7, 1.7]"),
      ElementsAre(0, 0, 0, 255, 255, 255, 255, 170, 85, 17, 255, 51, 28, 57, 255, 217, 217, 215));
}

TEST(ColorJitter, ContrastScalesAroundTheMeanBrightness) {
  EXPECT_THAT(Jittered("contrast: [0.5, 0.5]"),
              ElementsAre(58, 58, 58, 186, 186, 186, 158, 108, 83, 63, 178, 73, 67, 75, 159, 122,
                          122, 122));
  EXPECT_THAT(Jittered("contrast: [1.7, 1.7]"),
              ElementsAre(0, 0, 0, 255, 255, 255, 255, 88, 3, 0, 255, 0, 0, 0, 255, 135, 135, 134));
  EXPECT_THAT(RunOnPixels("- color_jitter: {contrast: [0.5, 0.5]}", 1, 3, 1, {0, 100, 200}),
              ElementsAre(50, 100, 150));
}

TEST(ColorJitter, SaturationScalesAwayFromGrey) {
  EXPECT_THAT(
      Jittered("saturation: [0, 0]"),
      ElementsAre(0, 0, 0, 255, 255, 255, 124, 124, 124, 147, 147, 147, 48, 48, 48, 128, 128, 128));
  EXPECT_THAT(
      Jittered("saturation: [0.3, 0.3]"),
      ElementsAre(0, 0, 0, 255, 255, 255, 146, 116, 101, 105, 174, 111, 38, 43, 93, 128, 128, 127));
  EXPECT_THAT(Jittered("saturation: [1.9, 1.9]"), ElementsAre(0, 0, 0, 255, 255, 255, 255, 78, 0, 0,
                                                              255, 0, 0, 21, 255, 128, 128, 126));
}

TEST(ColorJitter, HueTurnsTheColourCircle) {
  EXPECT_THAT(Jittered("hue: [0.1, 0.1]"), ElementsAre(0, 0, 0, 255, 255, 255, 200, 188, 50, 10,
                                                       240, 162, 108, 17, 201, 128, 128, 127));
  EXPECT_THAT(
      Jittered("hue: [-0.25, -0.25]"),
      ElementsAre(0, 0, 0, 255, 255, 255, 181, 50, 200, 240, 145, 10, 17, 201, 95, 128, 127, 128));
  EXPECT_THAT(Jittered("hue: [0.5, 0.5]"), ElementsAre(0, 0, 0, 255, 255, 255, 50, 152, 200, 240,
                                                       10, 226, 201, 177, 17, 127, 128, 128));
}

TEST(ColorJitter, WithoutParametersNothingChanges) {
  EXPECT_EQ(RunOnPixels("- color_jitter", 2, 3, 3, kPixels), kPixels);
}

TEST(ColorJitter, ANumberIsARangeAroundNeutral) {
  // brightness 0.4 is [0.6, 1.4]: a pixel of 100 comes out between 60 and 140, on both sides of
  // 100.
  std::set<int> seen;
  for (int64_t id = 0; id < 400; ++id) {
    seen.insert(RunOnPixels("- color_jitter: {brightness: 0.4}", 1, 1, 1, {100}, id)[0]);
  }
  EXPECT_GE(*seen.begin(), 60);
  EXPECT_LT(*seen.begin(), 65);
  EXPECT_LE(*seen.rbegin(), 140);
  EXPECT_GT(*seen.rbegin(), 135);
}

TEST(ColorJitter, TheOrderIsRandom) {
  // Brightness up to saturation of the numbers, then contrast, differs from contrast first: both
  // results must be seen.
  std::set<Bytes> seen;
  for (int64_t id = 0; id < 40; ++id) {
    seen.insert(RunOnPixels("- color_jitter: {brightness: [2, 2], contrast: [0.5, 0.5]}", 1, 2, 1,
                            {40, 200}, id));
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ColorJitter, AGreyImageHasNoHueOrSaturation) {
  EXPECT_THAT(RunOnPixels("- color_jitter: {saturation: [0, 0], hue: 0.5}", 1, 3, 1, {0, 100, 200}),
              ElementsAre(0, 100, 200));
}

}  // namespace
}  // namespace feedwater::server
