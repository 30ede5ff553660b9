// random_zoom_out: torchvision's canvas.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(RandomZoomOut, TheImageStandsWhereTheDrawsSay) {
  const Bytes pixels(20 * 30, 255);
  int still = 0;
  for (int64_t id = 0; id < 100; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    int left = 0, top = 0, width = 30, height = 20;
    if (draws.Bernoulli(0.7)) {
      const double side = draws.Uniform(1, 3);
      width = static_cast<int>(30 * side), height = static_cast<int>(20 * side);
      left = static_cast<int>((width - 30) * draws.Uniform());
      top = static_cast<int>((height - 20) * draws.Uniform());
    } else {
      ++still;
    }
    // A crop around the canvas, at a place that is known.
    const Bytes out = RunOnPixels(
        "- random_zoom_out: {side_range: [1, 3], p: 0.7, fill: 9}\n- center_crop: {size: [200, "
        "200]}",
        20, 30, 1, pixels, id);
    const auto first = std::find(out.begin(), out.end(), 255) - out.begin();
    EXPECT_EQ(first / 200, (200 - height) / 2 + top) << "sample " << id;
    EXPECT_EQ(first % 200, (200 - width) / 2 + left) << "sample " << id;
    EXPECT_EQ(std::count(out.begin(), out.end(), 9), width * height - 600);
  }
  EXPECT_NEAR(still, 30, 20);
}

TEST(RandomZoomOut, ACanvasThatIsTooLargeIsToldWithItsCures) {
  TestRecord record;
  record.AddPixels(20, 30, 1, Bytes(600));
  const auto run = [&](const std::string& limits) {
    const auto plan =
        MakePlan(PipelineText("- random_zoom_out: {side_range: [2, 2], p: 1}\n- center_crop: "
                              "{size: 9}",
                              "[image]", limits),
                 record.fields());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return RunPlan(**plan, record, 0).status();
  };
  EXPECT_THAT(std::string(run("limits: {max_pixels: 2399}\n").message()),
              ::testing::EndsWith("a result of 60x40 pixels is over max_pixels (2399); cure: "
                                  "parameters that make less of it, or a smaller image before "
                                  "(resize), or limits: {max_pixels: 2400} in the pipeline"));
  EXPECT_TRUE(run("limits: {max_pixels: 2400}\n").ok());
}

}  // namespace
}  // namespace feedwater::server
