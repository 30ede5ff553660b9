// auto_augment: the pairs that each policy does, and that each operation is that of its op.
// Magnitudes: graph/augmentations_test.cc.
#include <gmock/gmock.h>

#include <set>

#include "absl/strings/str_split.h"
#include "tests/graph/augment_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

constexpr Size kSize = {53, 41};

// torchvision's policies: name, tenths of probability and bin of each operation.
const char* const kImagenet =
    "Posterize 4 8, Rotate 6 9; "
    "Solarize 6 5, AutoContrast 6 0; "
    "Equalize 8 0, Equalize 6 0; "
    "Posterize 6 7, Posterize 6 6; "
    "Equalize 4 0, Solarize 2 4; "
    "Equalize 4 0, Rotate 8 8; "
    "Solarize 6 3, Equalize 6 0; "
    "Posterize 8 5, Equalize 10 0; "
    "Rotate 2 3, Solarize 6 8; "
    "Equalize 6 0, Posterize 4 6; "
    "Rotate 8 8, Color 4 0; "
    "Rotate 4 9, Equalize 6 0; "
    "Equalize 0 0, Equalize 8 0; "
    "Invert 6 0, Equalize 10 0; "
    "Color 6 4, Contrast 10 8; "
    "Rotate 8 8, Color 10 2; "
    "Color 8 8, Solarize 8 7; "
    "Sharpness 4 7, Invert 6 0; "
    "ShearX 6 5, Equalize 10 0; "
    "Color 4 0, Equalize 6 0; "
    "Equalize 4 0, Solarize 2 4; "
    "Solarize 6 5, AutoContrast 6 0; "
    "Invert 6 0, Equalize 10 0; "
    "Color 6 4, Contrast 10 8; "
    "Equalize 8 0, Equalize 6 0";

const char* const kCifar10 =
    "Invert 1 0, Contrast 2 6; "
    "Rotate 7 2, TranslateX 3 9; "
    "Sharpness 8 1, Sharpness 9 3; "
    "ShearY 5 8, TranslateY 7 9; "
    "AutoContrast 5 0, Equalize 9 0; "
    "ShearY 2 7, Posterize 3 7; "
    "Color 4 3, Brightness 6 7; "
    "Sharpness 3 9, Brightness 7 9; "
    "Equalize 6 0, Equalize 5 0; "
    "Contrast 6 7, Sharpness 6 5; "
    "Color 7 7, TranslateX 5 8; "
    "Equalize 3 0, AutoContrast 4 0; "
    "TranslateY 4 3, Sharpness 2 6; "
    "Brightness 9 6, Color 2 8; "
    "Solarize 5 2, Invert 0 0; "
    "Equalize 2 0, AutoContrast 6 0; "
    "Equalize 2 0, Equalize 6 0; "
    "Color 9 9, Equalize 6 0; "
    "AutoContrast 8 0, Solarize 2 8; "
    "Brightness 1 3, Color 7 0; "
    "Solarize 4 5, AutoContrast 9 0; "
    "TranslateY 9 9, TranslateY 7 9; "
    "AutoContrast 9 0, Solarize 8 3; "
    "Equalize 8 0, Invert 1 0; "
    "TranslateY 7 9, AutoContrast 9 0";

const char* const kSvhn =
    "ShearX 9 4, Invert 2 0; "
    "ShearY 9 8, Invert 7 0; "
    "Equalize 6 0, Solarize 6 6; "
    "Invert 9 0, Equalize 6 0; "
    "Equalize 6 0, Rotate 9 3; "
    "ShearX 9 4, AutoContrast 8 0; "
    "ShearY 9 8, Invert 4 0; "
    "ShearY 9 5, Solarize 2 6; "
    "Invert 9 0, AutoContrast 8 0; "
    "Equalize 6 0, Rotate 9 3; "
    "ShearX 9 4, Solarize 3 3; "
    "ShearY 8 8, Invert 7 0; "
    "Equalize 9 0, TranslateY 6 6; "
    "Invert 9 0, Equalize 6 0; "
    "Contrast 3 3, Rotate 8 4; "
    "Invert 8 0, TranslateY 0 2; "
    "ShearY 7 6, Solarize 4 8; "
    "Invert 6 0, Rotate 8 4; "
    "ShearY 3 7, TranslateX 9 3; "
    "ShearX 1 6, Invert 6 0; "
    "Solarize 7 2, TranslateY 6 7; "
    "ShearY 8 4, Invert 8 0; "
    "ShearX 7 9, TranslateY 8 3; "
    "ShearY 8 5, AutoContrast 7 0; "
    "ShearX 7 2, Invert 1 0";

const std::vector<std::string> kNames = {"Identity",     "ShearX",    "ShearY",     "TranslateX",
                                         "TranslateY",   "Rotate",    "Brightness", "Color",
                                         "Contrast",     "Sharpness", "Posterize",  "Solarize",
                                         "AutoContrast", "Equalize",  "Invert"};

struct Step {
  Augmentation kind;
  double p;
  int64_t bin;
};

std::vector<std::vector<Step>> PairsOf(const std::string& text) {
  std::vector<std::vector<Step>> pairs;
  for (const absl::string_view pair : absl::StrSplit(text, "; ")) {
    pairs.emplace_back();
    for (const absl::string_view step : absl::StrSplit(pair, ", ")) {
      const std::vector<std::string> words = absl::StrSplit(step, ' ');
      const auto kind = std::find(kNames.begin(), kNames.end(), words[0]) - kNames.begin();
      pairs.back().push_back(
          {static_cast<Augmentation>(kind), std::stoi(words[1]) / 10.0, std::stoi(words[2])});
    }
  }
  return pairs;
}

void ExpectThatItDoes(const std::string& policy, const std::string& text) {
  const std::vector<std::vector<Step>> pairs = PairsOf(text);
  ASSERT_EQ(pairs.size(), 25u);
  const Bytes pixels = PatternPixels(kSize.height, kSize.width, 3);
  std::set<size_t> seen;
  for (int64_t id = 0; id < 500; ++id) {
    Draws draws = FirstDraws(id);
    const auto pair = static_cast<size_t>(draws.Below(25));
    Bytes expected = pixels;
    for (const Step& step : pairs[pair]) {
      const bool is_done = draws.Uniform() < step.p, negative = draws.Uniform() < 0.5;
      const double magnitude = MagnitudeOf(kModerate, step.kind, kSize, 10, step.bin);
      if (!is_done) continue;
      seen.insert(pair);
      expected = Augmented({step.kind, negative && IsSigned(step.kind) ? -magnitude : magnitude},
                           expected, kSize, 3);
    }
    EXPECT_EQ(RunOnPixels(absl::StrCat("- auto_augment: {policy: ", policy, "}"), kSize.height,
                          kSize.width, 3, pixels, id),
              expected)
        << "pair " << pair;
  }
  EXPECT_EQ(seen.size(), 25u);
}

TEST(AutoAugment, ImagenetsPairs) { ExpectThatItDoes("imagenet", kImagenet); }

TEST(AutoAugment, Cifar10sPairs) { ExpectThatItDoes("cifar10", kCifar10); }

TEST(AutoAugment, SvhnsPairs) { ExpectThatItDoes("svhn", kSvhn); }

TEST(AutoAugment, ImagenetIsTheDefault) {
  const Bytes pixels = PatternPixels(20, 24, 3);
  for (int64_t id = 0; id < 50; ++id)
    EXPECT_EQ(RunOnPixels("- auto_augment", 20, 24, 3, pixels, id),
              RunOnPixels("- auto_augment: {policy: imagenet}", 20, 24, 3, pixels, id));
}

TEST(AutoAugment, AnUnknownPolicyIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const auto refused = RunGraph("- auto_augment: {policy: cifar}", record);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::AllOf(HasSubstr("test.yaml:4:"), HasSubstr("'policy'")));
}

}  // namespace
}  // namespace feedwater::server
