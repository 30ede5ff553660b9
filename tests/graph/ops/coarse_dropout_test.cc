// coarse_dropout: holes of the sizes that are asked for, inside the image.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(CoarseDropout, HolesStandWhereTheDrawsSay) {
  for (int64_t id = 0; id < 20; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    Bytes expected(20 * 30, 200);
    draws.Bernoulli(1);
    for (int64_t holes = 2 + draws.Below(3); holes > 0; --holes) {
      const int64_t height = 3 + draws.Below(4), width = 7;
      draws.Below(1);  // of the width, which is fixed
      const int64_t y = draws.Below(20 - height + 1), x = draws.Below(30 - width + 1);
      for (int64_t row = y; row < y + height; ++row)
        std::fill_n(expected.begin() + row * 30 + x, width, 9);
    }
    EXPECT_EQ(RunOnPixels(
                  "- coarse_dropout: {num_holes: [2, 4], hole_height: [3, 6], hole_width: 7, fill: "
                  "9, p: 1}",
                  20, 30, 1, Bytes(600, 200), id),
              expected);
  }
}

TEST(CoarseDropout, AHoleLargerThanTheImageCoversIt) {
  EXPECT_EQ(
      RunOnPixels(
          "- coarse_dropout: {num_holes: 1, hole_height: 99, hole_width: 99, fill: [1, 2, 3], "
          "p: 1}",
          1, 2, 3, Bytes(6, 200)),
      (Bytes{1, 2, 3, 1, 2, 3}));
}

TEST(CoarseDropout, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params : {"num_holes: 1.5", "hole_height: [3, 2]", "hole_width: 0", "p: 2"}) {
    const auto refused = RunGraph(absl::StrCat("- coarse_dropout: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(
        std::string(refused.status().message()),
        ::testing::AllOf(HasSubstr("test.yaml:4:"),
                         HasSubstr(std::string(params).substr(0, std::string(params).find(':')))));
  }
}

}  // namespace
}  // namespace feedwater::server
