// random_short_side: torchvision's RandomShortestSize.
#include <gmock/gmock.h>

#include <set>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Where a box of the whole image ends tells the size.
std::vector<float> SizeOf(const std::string& op, int64_t height, int64_t width, int64_t id) {
  TestRecord record;
  record.AddPixels(height, width, 3, PatternPixels(height, width, 3));
  const TensorSpec spec{DType::kFloat32, Layout::kPlain, {1, 4}};
  const float box[4] = {0, 0, static_cast<float>(width), static_cast<float>(height)};
  Bytes bytes(sizeof(box));
  std::memcpy(bytes.data(), box, sizeof(box));
  record.Add("boxes", spec, spec, bytes);
  const auto outs = RunGraph(op, record, "[{boxes: {pad_to: 1}}]", id);
  EXPECT_TRUE(outs.ok()) << outs.status();
  const auto out = As<float>((*outs)[0]);
  return {out[3], out[2]};
}

TEST(RandomShortSide, TheShorterSideIsOneOfTheList) {
  std::set<float> seen;
  for (int64_t id = 0; id < 40; ++id) {
    const auto size =
        SizeOf("- random_short_side: {in: [image, boxes], min_size: [10, 15, 20]}", 30, 60, id);
    EXPECT_EQ(size[1], 2 * size[0]);
    seen.insert(size[0]);
  }
  EXPECT_THAT(seen, ElementsAre(10, 15, 20));
}

TEST(RandomShortSide, TheLongerSideHasALimit) {
  EXPECT_THAT(
      SizeOf("- random_short_side: {in: [image, boxes], min_size: [20], max_size: 30}", 30, 60, 1),
      ElementsAre(15, 30));
}

TEST(RandomShortSide, AnEmptyListIsRefused) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const auto refused =
      RunGraph("- random_short_side: {min_size: []}\n- center_crop: {size: 1}", record);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("'min_size'"));
}

}  // namespace
}  // namespace feedwater::server
