// pad: pixels of one colour around the image, another one around masks.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Pad, AddsWhatIsAskedForOnEachSide) {
  EXPECT_THAT(RunOnPixels("- pad: {padding: 1, fill: 9}", 1, 1, 1, {5}),
              ElementsAre(9, 9, 9, 9, 5, 9, 9, 9, 9));
  EXPECT_THAT(RunOnPixels("- pad: {padding: [1, 0]}", 1, 1, 1, {5}), ElementsAre(0, 5, 0));
  EXPECT_THAT(RunOnPixels("- pad: {padding: [2, 0, 0, 1], fill: [1, 2, 3]}", 1, 1, 3, {5, 6, 7}),
              ElementsAre(1, 2, 3, 1, 2, 3, 5, 6, 7, 1, 2, 3, 1, 2, 3, 1, 2, 3));
}

TEST(Pad, MasksHaveAFillOfTheirOwn) {
  TestRecord record;
  record.AddPixels(1, 1, 3, {5, 6, 7});
  const TensorSpec spec{DType::kInt16, Layout::kPlain, {1, 1}};
  record.Add("mask", spec, spec, {44, 1});
  const auto outs =
      RunGraph("- pad: {in: [image, mask], padding: [1, 0, 0, 0], fill: 9, mask_fill: 255}", record,
               "[image, mask]");
  ASSERT_TRUE(outs.ok()) << outs.status();
  EXPECT_THAT((*outs)[0], ElementsAre(9, 9, 9, 5, 6, 7));
  EXPECT_THAT(As<int16_t>((*outs)[1]), ElementsAre(255, 300));
}

TEST(Pad, FusedAndUnfusedAreTheSame) {
  TestRecord record;
  record.AddEncoded(EncodedImage(20, 30, ".png"));
  const std::string graph =
      "- decode\n- resize: {size: [12, 14]}\n- pad: {padding: [1, 2, 3, 4], fill: [7, 8, 9]}\n"
      "- random_horizontal_flip: {p: 1}\n- normalize: {mean: [10], std: [20]}";
  EXPECT_EQ(*RunGraph(graph, record, "[image]", 7, true),
            *RunGraph(graph, record, "[image]", 7, false));
}

TEST(Pad, AResultOverTheLimitIsRefused) {
  TestRecord record;
  record.AddPixels(1, 1, 1, {5});
  const auto refused = RunGraph("- pad: {padding: 30000}", record);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::AllOf(HasSubstr("test.yaml:4:3: op 'pad'"), HasSubstr("max_pixels"),
                               HasSubstr("a smaller image before (resize)")));
}

}  // namespace
}  // namespace feedwater::server
