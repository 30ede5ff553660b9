// grid_distortion: steps of the drawn lengths. Pixels, boxes: imaging/warp_test.cc,
// joint_fields_test.cc.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(GridDistortion, PlacesFollowTheDrawnSteps) {
  constexpr int kSide = 100, kSteps = 4;
  Bytes ramp;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) ramp.push_back(static_cast<uint8_t>(2 * x));
  }
  for (int64_t id = 0; id < 10; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    draws.Bernoulli(1);
    double edges[kSteps + 1] = {0};
    for (int i = 0; i < kSteps; ++i) edges[i + 1] = edges[i] + 1 + draws.Uniform(-0.5, 0.5);
    const Bytes out = RunOnPixels("- grid_distortion: {num_steps: 4, distort_limit: 0.5, p: 1}",
                                  kSide, kSide, 1, ramp, id);
    for (int i = 1; i < kSteps; ++i) {
      // Where a step begins, halfway between two pixels.
      const int x = i * kSide / kSteps;
      const double place = edges[i] / edges[kSteps] * kSide, seen = (out[x - 1] + out[x]) / 2.0;
      EXPECT_NEAR(seen, 2 * (place - 0.5), 2) << "sample " << id << " step " << i;
    }
  }
}

TEST(GridDistortion, NoLimitChangesNothing) {
  const Bytes pixels = PatternPixels(33, 20, 3);
  EXPECT_EQ(RunOnPixels("- grid_distortion: {distort_limit: 0, p: 1}", 33, 20, 3, pixels), pixels);
}

TEST(GridDistortion, ALimitThatIsRefusedIsNamedAsItWasWritten) {
  TestRecord record;
  record.AddPixels(4, 4, 3, PatternPixels(4, 4, 3));
  const auto refusal = [&](const std::string& limit) {
    const auto out =
        RunGraph(absl::StrCat("- grid_distortion: {distort_limit: ", limit, "}"), record);
    return std::string(out.status().message());
  };
  EXPECT_THAT(refusal("1"),
              ::testing::EndsWith("between -0.99 and 10, not 1, which means [-1.0, 1.0]; cure: a "
                                  "number up to 0.99, or [low, high]"));
  EXPECT_THAT(refusal("[-1, 1]"), ::testing::EndsWith("and 10, not -1"));
  EXPECT_THAT(refusal("11"), ::testing::HasSubstr("not 11, which means [-11.0, 11.0]; cure: a "));
}

}  // namespace
}  // namespace feedwater::server
