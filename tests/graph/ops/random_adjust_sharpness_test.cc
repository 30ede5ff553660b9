// random_adjust_sharpness: its probability. The arithmetic: imaging/filter_test.cc.
#include <gmock/gmock.h>

#include "server/imaging/filter.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(RandomAdjustSharpness, AnImageIsSharpenedOrLeftAlone) {
  const Bytes pixels = PatternPixels(20, 30, 3);
  Bytes sharp(pixels.size());
  EXPECT_TRUE(AdjustSharpness(pixels.data(), {30, 20}, 3, 2.5f, clock, sharp.data()).ok());
  int count = 0;
  for (int64_t id = 0; id < 300; ++id) {
    const Bytes out = RunOnPixels("- random_adjust_sharpness: {sharpness_factor: 2.5, p: 0.4}", 20,
                                  30, 3, pixels, id);
    ASSERT_TRUE(out == sharp || out == pixels);
    count += out == sharp;
  }
  EXPECT_NEAR(count, 120, 42);
  EXPECT_EQ(
      RunOnPixels("- random_adjust_sharpness: {sharpness_factor: 1, p: 1}", 20, 30, 3, pixels),
      pixels);
}

}  // namespace
}  // namespace feedwater::server
