// random_vertical_flip: mirrors with the probability that it is given.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

TEST(RandomVerticalFlip, MirrorsTheImageWhenCertain) {
  EXPECT_THAT(RunOnPixels("- random_vertical_flip: {p: 1}", 2, 3, 1, {1, 2, 3, 4, 5, 6}),
              ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(RunOnPixels("- random_vertical_flip: {p: 1}", 2, 1, 3, {1, 2, 3, 4, 5, 6}),
              ElementsAre(4, 5, 6, 1, 2, 3));
}

TEST(RandomVerticalFlip, LeavesTheImageWhenImpossible) {
  EXPECT_THAT(RunOnPixels("- random_vertical_flip: {p: 0}", 2, 2, 1, {1, 2, 3, 4}),
              ElementsAre(1, 2, 3, 4));
}

TEST(RandomVerticalFlip, MirrorsAsOftenAsItsProbabilitySays) {
  constexpr int kSamples = 4000;
  int mirrored = 0;
  for (int64_t id = 0; id < kSamples; ++id) {
    mirrored += RunOnPixels("- random_vertical_flip: {p: 0.3}", 2, 1, 1, {1, 2}, id)[0] == 2;
  }
  EXPECT_NEAR(mirrored, 0.3 * kSamples, 145);  // five standard deviations
}

TEST(RandomVerticalFlip, PlanesAndOtherTypesAreMirroredToo) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const auto result = RunGraph(
      "- cast: {dtype: int32}\n- layout: {layout: CHW}\n- random_vertical_flip: {p: 1}", record);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(As<int32_t>((*result)[0]), ElementsAre(3, 4, 1, 2));
}

TEST(RandomVerticalFlip, FieldsThatMoveTogetherGetTheSameDraw) {
  for (int64_t id = 0; id < 30; ++id) {
    TestRecord record;
    record.AddPixels(2, 2, 1, {1, 2, 3, 4})
        .Add("mask", PixelSpec(2, 2, 1), PixelSpec(2, 2, 1), {1, 2, 3, 4});
    const auto result =
        RunGraph("- random_vertical_flip: {in: [image, mask]}", record, "[image, mask]", id);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0], (*result)[1]) << "sample " << id;
  }
}

}  // namespace
}  // namespace feedwater::server
