// color_jitter: Pillow's arithmetic, torchvision's ranges and order. The expected numbers are what
// Pillow gives for ImageEnhance.Brightness, Contrast and Color, and for torchvision's adjust_hue,
// on these six pixels.
#include <gmock/gmock.h>

#include <cmath>
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

TEST(ColorJitter, HappensWithProbabilityPAndDrawsTheSame) {
  const Bytes pixels = PatternPixels(20, 30, 3);
  int changed = 0;
  for (int64_t id = 0; id < 300; ++id) {
    const Bytes always = RunOnPixels("- color_jitter: {brightness: 0.5}", 20, 30, 3, pixels, id);
    const Bytes made =
        RunOnPixels("- color_jitter: {brightness: 0.5, p: 0.8}", 20, 30, 3, pixels, id);
    changed += made != pixels;
    EXPECT_TRUE(made == pixels || made == always) << "sample " << id;
  }
  EXPECT_NEAR(changed, 240, 30);
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

// Pillow's libImaging/Convert.c and torchvision's adjust_hue on one pixel, spelled as there.
void ReferenceHue(uint8_t shift, uint8_t* rgb) {
  const auto clip = [](int v) { return static_cast<uint8_t>(v <= 0 ? 0 : v >= 255 ? 255 : v); };
  const uint8_t r = rgb[0], g = rgb[1], b = rgb[2];
  const uint8_t maxc = std::max(r, std::max(g, b)), minc = std::min(r, std::min(g, b));
  uint8_t uh = 0, us = 0;
  if (minc != maxc) {
    const float cr = static_cast<float>(maxc - minc), s = cr / static_cast<float>(maxc);
    const float rc = static_cast<float>(maxc - r) / cr, gc = static_cast<float>(maxc - g) / cr,
                bc = static_cast<float>(maxc - b) / cr;
    float h;
    if (r == maxc) {
      h = bc - gc;
    } else if (g == maxc) {
      h = static_cast<float>(2.0 + rc - bc);
    } else {
      h = static_cast<float>(4.0 + gc - rc);
    }
    h = static_cast<float>(std::fmod(h / 6.0 + 1.0, 1.0));
    uh = clip(static_cast<int>(h * 255.0));
    us = clip(static_cast<int>(s * 255.0));
  }
  uh = static_cast<uint8_t>(uh + shift);
  if (us == 0) {
    rgb[0] = rgb[1] = rgb[2] = maxc;
    return;
  }
  const int i = static_cast<int>(std::floor(static_cast<float>(uh) * 6.0 / 255.0));
  const float f = static_cast<float>(static_cast<float>(uh) * 6.0 / 255.0 - static_cast<float>(i)),
              fs = static_cast<float>(us) / 255.0f;
  const uint8_t p = clip(static_cast<int>(std::round(maxc * (1.0 - fs))));
  const uint8_t q = clip(static_cast<int>(std::round(maxc * (1.0 - fs * f))));
  const uint8_t t = clip(static_cast<int>(std::round(maxc * (1.0 - fs * (1.0 - f)))));
  const uint8_t colours[6][3] = {{maxc, t, p}, {q, maxc, p}, {p, maxc, t},
                                 {p, q, maxc}, {t, p, maxc}, {maxc, p, q}};
  std::memcpy(rgb, colours[i % 6], 3);
}

TEST(ColorJitter, HueOfColoursAllOverTheCubeIsPillows) {
  // Every colour whose channels are multiples of 3: 86^3, by a shift of int(0.3 * 255) = 76.
  Bytes pixels;
  for (int r = 0; r < 256; r += 3) {
    for (int g = 0; g < 256; g += 3) {
      for (int b = 0; b < 256; b += 3) {
        pixels.insert(pixels.end(),
                      {static_cast<uint8_t>(r), static_cast<uint8_t>(g), static_cast<uint8_t>(b)});
      }
    }
  }
  const int64_t count = static_cast<int64_t>(pixels.size() / 3);
  const Bytes out =
      RunOnPixels("- color_jitter: {hue: [0.3, 0.3]}", 86 * 86, count / (86 * 86), 3, pixels);
  ASSERT_EQ(out.size(), pixels.size());
  for (size_t i = 0; i < pixels.size(); i += 3) {
    const Bytes in(pixels.begin() + static_cast<int64_t>(i),
                   pixels.begin() + static_cast<int64_t>(i) + 3);
    ReferenceHue(76, &pixels[i]);
    ASSERT_TRUE(std::equal(&pixels[i], &pixels[i] + 3, &out[i]))
        << int{in[0]} << "," << int{in[1]} << "," << int{in[2]};
  }
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

TEST(ColorJitter, ANumberThatIsRefusedIsNamedAsItWasWritten) {
  TestRecord record;
  record.AddPixels(1, 1, 3, {1, 2, 3});
  const auto refusal = [&](const std::string& params) {
    const auto out = RunGraph(absl::StrCat("- color_jitter: {", params, "}"), record);
    return std::string(out.status().message());
  };
  EXPECT_THAT(refusal("contrast: 1000"),
              ::testing::EndsWith("between 0 and 1000, not 1000, which means [0.0, 1001.0]; cure: "
                                  "a number up to 999, or [low, high]"));
  EXPECT_THAT(refusal("contrast: [0, 1001]"), ::testing::EndsWith("and 1000, not 1001"));
  EXPECT_THAT(refusal("hue: 0.7"), ::testing::EndsWith("between -0.5 and 0.5, not 0.7"));
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
