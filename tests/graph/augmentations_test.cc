// Magnitudes as torchvision's tables have them: written out from its source.
#include "server/graph/augmentations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;

constexpr Magnitudes kWide = {
    .shear = 0.99, .translate = 32, .rotate = 135, .enhance = 0.99, .bits_off = 6};
constexpr Size kPhoto = {331, 662};  // width, height

std::vector<double> All(const Magnitudes& most, Augmentation kind, int64_t bins) {
  std::vector<double> all;
  for (int64_t bin = 0; bin < bins; ++bin)
    all.push_back(MagnitudeOf(most, kind, kPhoto, bins, bin));
  return all;
}

TEST(Augmentations, MagnitudesRiseInEqualStepsOfFloat32) {
  // linspace(0, 0.99, 31)
  for (int64_t i = 0; i < 31; ++i) {
    const auto share = static_cast<double>(i) / 30;
    EXPECT_NEAR(All(kWide, Augmentation::kShearX, 31)[static_cast<size_t>(i)], 0.99 * share, 1e-7);
    EXPECT_NEAR(All(kWide, Augmentation::kRotate, 31)[static_cast<size_t>(i)], 135 * share, 1e-5);
    EXPECT_NEAR(All(kWide, Augmentation::kSolarize, 31)[static_cast<size_t>(i)], 1 - share, 1e-7);
    EXPECT_NEAR(All(kModerate, Augmentation::kRotate, 31)[static_cast<size_t>(i)], 30 * share,
                1e-5);
  }
  for (const Augmentation kind :
       {Augmentation::kShearY, Augmentation::kBrightness, Augmentation::kColor,
        Augmentation::kContrast, Augmentation::kSharpness})
    EXPECT_EQ(All(kWide, kind, 31), All(kWide, Augmentation::kShearX, 31));
  EXPECT_EQ(MagnitudeOf(kWide, Augmentation::kShearX, kPhoto, 31, 30), 0.99f);
  // Ten steps of float32(0.99) / 30, computed by NumPy: not the float32 nearest to 0.33.
  EXPECT_EQ(MagnitudeOf(kWide, Augmentation::kShearX, kPhoto, 31, 10), 0.32999998331069946);
  EXPECT_EQ(MagnitudeOf(kModerate, Augmentation::kShearX, kPhoto, 31, 30), 0.3f);
  EXPECT_EQ(MagnitudeOf(kModerate, Augmentation::kColor, kPhoto, 31, 30), 0.9f);
}

TEST(Augmentations, TranslateIsInPixelsOrInSharesOfItsSide) {
  std::vector<int> wide;
  for (const double m : All(kWide, Augmentation::kTranslateX, 31))
    wide.push_back(static_cast<int>(m));
  // int() of linspace(0, 32, 31)
  EXPECT_THAT(wide, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19,
                                20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 32));
  EXPECT_EQ(All(kWide, Augmentation::kTranslateY, 31), All(kWide, Augmentation::kTranslateX, 31));
  EXPECT_EQ(MagnitudeOf(kModerate, Augmentation::kTranslateX, kPhoto, 31, 30), 150);
  EXPECT_EQ(MagnitudeOf(kModerate, Augmentation::kTranslateX, kPhoto, 31, 9), 45);
  EXPECT_EQ(MagnitudeOf(kModerate, Augmentation::kTranslateY, kPhoto, 31, 30), 300);
  EXPECT_NEAR(MagnitudeOf(kModerate, Augmentation::kTranslateY, {224, 224}, 10, 9),
              150.0 / 331.0 * 224, 1e-5);
}

TEST(Augmentations, PosterizeKeepsFewerAndFewerBits) {
  // 8 - round(arange(31) / (30 / 6)), halves to even
  EXPECT_THAT(All(kWide, Augmentation::kPosterize, 31),
              ElementsAre(8, 8, 8, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 4, 4, 4, 4, 4, 3, 3,
                          3, 3, 3, 2, 2, 2));
  // 8 - round(arange(31) / (30 / 4))
  EXPECT_THAT(All(kModerate, Augmentation::kPosterize, 31),
              ElementsAre(8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5,
                          5, 5, 4, 4, 4, 4));
  // 8 - round(arange(10) / (9 / 4))
  EXPECT_THAT(All(kModerate, Augmentation::kPosterize, 10),
              ElementsAre(8, 8, 7, 7, 6, 6, 5, 5, 4, 4));
}

TEST(Augmentations, OthersHaveNoneAndSomeAreSigned) {
  for (const Augmentation kind : {Augmentation::kIdentity, Augmentation::kAutoContrast,
                                  Augmentation::kEqualize, Augmentation::kInvert})
    EXPECT_EQ(MagnitudeOf(kWide, kind, kPhoto, 31, 17), 0);
  std::vector<bool> is_signed;
  for (int kind = 0; kind <= static_cast<int>(Augmentation::kInvert); ++kind)
    is_signed.push_back(IsSigned(static_cast<Augmentation>(kind)));
  EXPECT_THAT(is_signed, ElementsAre(false, true, true, true, true, true, true, true, true, true,
                                     false, false, false, false, false));
}

}  // namespace
}  // namespace feedwater::server
