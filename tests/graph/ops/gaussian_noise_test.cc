// gaussian_noise: its units and draws. The numbers: imaging/noise_test.cc.
#include <gmock/gmock.h>

#include "server/graph/op_schema.h"
#include "server/imaging/noise.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(GaussianNoise, TheKeyIsTwoDraws) {
  const Bytes pixels = PatternPixels(20, 30, 3);
  const NormalNoise noise(0.1 * 255, 0.2 * 255);
  for (int64_t id = 0; id < 4; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    const uint32_t first = draws.Next(), second = draws.Next();
    Bytes expected(pixels.size());
    EXPECT_TRUE(
        noise.Add(pixels.data(), pixels.size(), {first, second}, clock, expected.data()).ok());
    EXPECT_EQ(RunOnPixels("- gaussian_noise: {mean: 0.1, sigma: 0.2}", 20, 30, 3, pixels, id),
              expected);
  }
}

TEST(GaussianNoise, NoSigmaIsNoNoise) {
  const Bytes pixels = PatternPixels(20, 30, 3);
  EXPECT_EQ(RunOnPixels("- gaussian_noise: {sigma: 0}", 20, 30, 3, pixels), pixels);
}

TEST(GaussianNoise, ItsTableCountsAmongThoseOfThePipeline) {
  int64_t tables = 0;
  const auto op =
      MakeOp(*Registry<OpEntry>::Get().Find("gaussian_noise"), YamlNode(), {}, {"image"}, &tables);
  ASSERT_TRUE(op.ok()) << op.status();
  EXPECT_EQ(tables, 128 << 10);
}

}  // namespace
}  // namespace feedwater::server
