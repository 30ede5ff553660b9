// random_resize: torchvision's RandomResize.
#include <gmock/gmock.h>

#include <set>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RandomResize, TheShorterSideIsOneOfTheRangeWithoutItsEnd) {
  // A bright image on the black canvas of a crop: its extent is its size.
  std::set<int64_t> seen;
  for (int64_t id = 0; id < 60; ++id) {
    const Bytes out =
        RunOnPixels("- random_resize: {min_size: 10, max_size: 13}\n- center_crop: {size: 40}", 20,
                    61, 1, Bytes(20 * 61, 255), id);
    seen.insert(std::count(out.begin(), out.end(), 255));
  }
  // torchvision's sizes: the longer side is cut to whole pixels.
  EXPECT_THAT(seen, ElementsAre(10 * 30, 11 * 33, 12 * 36));
}

TEST(RandomResize, ARangeOfNothingIsRefused) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* range : {"min_size: 8, max_size: 8", "min_size: 9, max_size: 8"}) {
    const auto refused =
        RunGraph(absl::StrCat("- random_resize: {", range, "}\n- center_crop: {size: 1}"), record);
    ASSERT_FALSE(refused.ok()) << range;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("'max_size'"));
  }
}

}  // namespace
}  // namespace feedwater::server
