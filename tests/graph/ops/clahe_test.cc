// clahe: its parameters and draws. The arithmetic: imaging/clahe_test.cc.
#include "server/imaging/clahe.h"

#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

WorkClock clock;  // that never says that it is enough

Bytes Made(const Bytes& pixels, Size size, int channels, double clip, Size tiles) {
  std::vector<std::byte> scratch(ClaheScratch(size, tiles));
  Bytes out(pixels.size());
  EXPECT_TRUE(
      Clahe(pixels.data(), size, channels, clip, tiles, scratch.data(), clock, out.data()).ok());
  return out;
}

TEST(ClaheOp, TheLimitIsTheSecondDraw) {
  for (const int channels : {1, 3}) {
    const Bytes pixels = PatternPixels(40, 50, channels);
    for (int64_t id = 0; id < 5; ++id) {
      Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
      ASSERT_TRUE(draws.Bernoulli(1));
      const double clip = draws.Uniform(1.5, 9);
      EXPECT_EQ(RunOnPixels("- clahe: {clip_limit: [1.5, 9], tile_grid_size: [4, 3], p: 1}", 40, 50,
                            channels, pixels, id),
                Made(pixels, {50, 40}, channels, clip, {4, 3}));
    }
  }
}

TEST(ClaheOp, AnImageOfOneShadeStaysEven) {
  const Bytes made = RunOnPixels("- clahe: {clip_limit: 2, p: 1}", 30, 30, 1, Bytes(30 * 30, 90));
  EXPECT_EQ(made, Bytes(30 * 30, made[0]));
}

TEST(ClaheOp, PIsTheShareOfImagesThatChange) {
  const Bytes pixels = PatternPixels(16, 16, 1);
  int changed = 0;
  for (int64_t id = 0; id < 300; ++id)
    changed += RunOnPixels("- clahe: {tile_grid_size: 2, p: 0.3}", 16, 16, 1, pixels, id) != pixels;
  EXPECT_NEAR(changed, 90, 40);
}

TEST(ClaheOp, AnImageOfFewerPixelsThanTilesIsMirrored) {
  const Bytes pixels = PatternPixels(2, 3, 3);
  EXPECT_EQ(RunOnPixels("- clahe: {clip_limit: 3, tile_grid_size: 8, p: 1}", 2, 3, 3, pixels),
            Made(pixels, {3, 2}, 3, 3, {8, 8}));
}

TEST(ClaheOp, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const std::pair<const char*, const char*> kBad[] = {{"clip_limit: 0", "'clip_limit'"},
                                                      {"clip_limit: [4, 1]", "low <= high"},
                                                      {"clip_limit: .nan", "'clip_limit'"},
                                                      {"tile_grid_size: 0", "'tile_grid_size'"},
                                                      {"tile_grid_size: 65", "'tile_grid_size'"},
                                                      {"tile_grid_size: 2.5", "whole numbers"},
                                                      {"p: 2", "'p'"}};
  for (const auto& [params, text] : kBad) {
    const auto refused = RunGraph(absl::StrCat("- clahe: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("test.yaml:4:"), HasSubstr(text)));
  }
  EXPECT_FALSE(RunGraph("- cast: {dtype: float32}\n- clahe", record).ok());
}

}  // namespace
}  // namespace feedwater::server
