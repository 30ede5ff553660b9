// random_photometric_distort: the same numbers as the ops it is made of, in one of their orders.
#include <gmock/gmock.h>

#include <set>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
const Bytes kPixels = {0,  0,   0,  255, 255, 255, 200, 100, 50,
                       10, 240, 30, 17,  34,  201, 128, 128, 127};

// One of the ops alone, with a range of one number.
TEST(RandomPhotometricDistort, EachChangeIsThatOfItsOp) {
  std::set<Bytes> orders;
  for (int order = 0; order < 6; ++order) {
    const int from[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    Bytes pixels = RunOnPixels("- adjust_brightness: {brightness_factor: 1.2}", 2, 3, 3, kPixels);
    pixels = RunOnPixels("- adjust_saturation: {saturation_factor: 1.7}", 2, 3, 3, pixels);
    pixels = RunOnPixels("- adjust_hue: {hue_factor: 0.1}", 2, 3, 3, pixels);
    Bytes permuted = pixels;
    for (size_t i = 0; i < pixels.size(); ++i) permuted[i] = pixels[i / 3 * 3 + from[order][i % 3]];
    orders.insert(permuted);
  }
  std::set<Bytes> seen;
  for (int64_t id = 0; id < 60; ++id) {
    seen.insert(
        RunOnPixels("- random_photometric_distort: {brightness: [1.2, 1.2], contrast: [1, 1], "
                    "saturation: [1.7, 1.7], hue: [0.1, 0.1], p: 1}",
                    2, 3, 3, kPixels, id));
  }
  EXPECT_EQ(seen, orders);
}

TEST(RandomPhotometricDistort, ContrastComesFirstOrLast) {
  // Saturation beyond the ends of the range does not commute with contrast.
  std::set<Bytes> seen;
  for (int64_t id = 0; id < 60; ++id) {
    Bytes out = RunOnPixels(
        "- random_photometric_distort: {brightness: [1, 1], contrast: [0.5, 0.5], "
        "saturation: [3, 3], hue: [0, 0], p: 1}",
        1, 2, 3, {200, 100, 50, 10, 10, 10}, id);
    std::sort(out.begin(), out.begin() + 3);  // whatever the channels' order is
    seen.insert(out);
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(RandomPhotometricDistort, WithProbabilityZeroNothingChanges) {
  for (int64_t id = 0; id < 20; ++id)
    EXPECT_EQ(RunOnPixels("- random_photometric_distort: {p: 0}", 2, 3, 3, kPixels, id), kPixels);
}

TEST(RandomPhotometricDistort, ARangeTheWrongWayRoundIsRefused) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {9, 200});
  const auto result = RunGraph("- random_photometric_distort: {contrast: [1.5, 0.5]}", record);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("'contrast'"));
}

TEST(RandomPhotometricDistort, AnImageOfFloatsIsRefusedWithTheCure) {
  TestRecord record;
  record.AddPixels(1, 2, 1, {9, 200});
  const auto result = RunGraph("- cast\n- random_photometric_distort", record);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("test.yaml:5:"));
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("put this op before the one that changes its dtype (normalize or cast)"));
}

}  // namespace
}  // namespace feedwater::server
