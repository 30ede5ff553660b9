// random_crop: every place alike likely, padding as torchvision's.
#include <gmock/gmock.h>

#include <map>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RandomCrop, TheWindowStandsWhereTheDrawsSay) {
  // The first draw is the row, the second the column, each uniform over the places that are left.
  const Bytes pixels = PatternPixels(6, 9, 1);
  for (int64_t id = 0; id < 20; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    const int64_t y = draws.Below(6 - 2 + 1), x = draws.Below(9 - 3 + 1);
    const Bytes out = RunOnPixels("- random_crop: {size: [2, 3]}", 6, 9, 1, pixels, id);
    const auto at = [&](int64_t row, int64_t column) {
      return pixels[static_cast<size_t>((y + row) * 9 + x + column)];
    };
    EXPECT_THAT(out, ElementsAre(at(0, 0), at(0, 1), at(0, 2), at(1, 0), at(1, 1), at(1, 2)))
        << "sample " << id;
  }
}

TEST(RandomCrop, AWindowOfTheImagesSizeIsTheImage) {
  EXPECT_THAT(RunOnPixels("- random_crop: {size: 2}", 2, 2, 1, {1, 2, 3, 4}),
              ElementsAre(1, 2, 3, 4));
}

TEST(RandomCrop, EveryPlaceComesUpAboutAsOften) {
  std::map<int, int> seen;
  constexpr int kSamples = 6000, kPlaces = 6;
  for (int64_t id = 0; id < kSamples; ++id) {
    ++seen[RunOnPixels("- random_crop: {size: 1}", 2, 3, 1, {0, 1, 2, 3, 4, 5}, id)[0]];
  }
  // Five standard deviations of a binomial draw.
  for (int place = 0; place < kPlaces; ++place)
    EXPECT_NEAR(seen[place], kSamples / kPlaces, 145) << place;
}

TEST(RandomCrop, PaddingIsPartOfWhatIsCutFrom) {
  // 1x1 with one pixel of padding is 3x3; a 3x3 window shows all of it.
  EXPECT_THAT(RunOnPixels("- random_crop: {size: 3, padding: 1, fill: 9}", 1, 1, 1, {5}),
              ElementsAre(9, 9, 9, 9, 5, 9, 9, 9, 9));
  EXPECT_THAT(RunOnPixels("- random_crop: {size: [1, 3], padding: [1, 0]}", 1, 1, 3, {5, 6, 7}),
              ElementsAre(0, 0, 0, 5, 6, 7, 0, 0, 0));
  EXPECT_THAT(RunOnPixels("- random_crop: {size: [2, 3], padding: [2, 1, 0, 0], fill: [1, 2, 3]}",
                          1, 1, 3, {5, 6, 7}),
              ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 5, 6, 7));
}

TEST(RandomCrop, MasksHaveAFillOfTheirOwn) {
  const auto cropped = [](const std::string& more) {
    TestRecord record;
    record.AddPixels(1, 1, 3, {5, 6, 7});
    const TensorSpec spec{DType::kInt16, Layout::kPlain, {1, 1}};
    record.Add("mask", spec, spec, {44, 1});
    const auto outs = RunGraph(
        absl::StrCat("- random_crop: {in: [image, mask], size: [1, 2], fill: [124, 116, 104], ",
                     more, "}"),
        record, "[image, mask]");
    EXPECT_TRUE(outs.ok()) << outs.status();
    return outs.value_or(std::vector<Bytes>(2));
  };
  for (const char* padding : {"padding: [1, 0, 0, 0]", "padding: [1, 0, 0, 0], mask_fill: 0"}) {
    const auto outs = cropped(padding);
    EXPECT_THAT(outs[0], ElementsAre(124, 116, 104, 5, 6, 7));
    EXPECT_THAT(As<int16_t>(outs[1]), ElementsAre(0, 300)) << "no class of the image's colour";
  }
  EXPECT_THAT(As<int16_t>(cropped("padding: [1, 0, 0, 0], mask_fill: 255")[1]),
              ElementsAre(255, 300));
  EXPECT_THAT(As<int16_t>(cropped("pad_if_needed: true, mask_fill: 255")[1]),
              ::testing::UnorderedElementsAre(255, 300));
}

TEST(RandomCrop, AWindowBesideTheImageShowsOnlyTheFill) {
  int all_fill = 0;
  for (int64_t id = 0; id < 200; ++id) {
    const Bytes out =
        RunOnPixels("- random_crop: {size: 2, padding: 30, fill: 3}", 1, 1, 1, {200}, id);
    const int image_pixels = static_cast<int>(std::count(out.begin(), out.end(), 200));
    EXPECT_LE(image_pixels, 1);
    all_fill += image_pixels == 0;
  }
  EXPECT_GT(all_fill, 150);
}

TEST(RandomCrop, ASmallerImageIsAnErrorUnlessPaddingIsAllowed) {
  TestRecord record;
  record.AddEncoded(EncodedImage(3, 3, ".png"));
  const auto refused = RunGraph("- decode\n- random_crop: {size: 5}", record);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("pad_if_needed"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("random_crop"));
  EXPECT_TRUE(RunGraph("- decode\n- random_crop: {size: 5, pad_if_needed: true}", record).ok());
}

TEST(RandomCrop, PadIfNeededPadsBothSides) {
  // One column is missing, so one is added on each side: the pixel is seen at either place.
  bool seen_left = false, seen_right = false;
  for (int64_t id = 0; id < 40; ++id) {
    const Bytes out =
        RunOnPixels("- random_crop: {size: [1, 2], pad_if_needed: true}", 1, 1, 1, {5}, id);
    seen_left |= out == Bytes{5, 0};
    seen_right |= out == Bytes{0, 5};
  }
  EXPECT_TRUE(seen_left && seen_right);
}

}  // namespace
}  // namespace feedwater::server
