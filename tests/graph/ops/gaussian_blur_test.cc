// gaussian_blur: its parameters and draws. The arithmetic: imaging/filter_test.cc.
#include <gmock/gmock.h>

#include "server/imaging/filter.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

Bytes Blurred(const Bytes& pixels, int height, int width, int channels, const Gaussian& x,
              const Gaussian& y) {
  std::vector<std::byte> scratch(BlurScratch({width, height}, channels, x.radius, y.radius));
  Bytes out(pixels.size());
  EXPECT_TRUE(GaussianBlur(pixels.data(), {width, height}, channels, x, y, scratch.data(), clock,
                           out.data())
                  .ok());
  return out;
}

TEST(GaussianBlurOp, SigmaIsTheFirstDraw) {
  const Bytes pixels = PatternPixels(20, 30, 3);
  for (int64_t id = 0; id < 5; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    const Gaussian gaussian = MakeGaussian(9, draws.Uniform(0.5, 3.0));
    EXPECT_EQ(
        RunOnPixels("- gaussian_blur: {kernel_size: 9, sigma: [0.5, 3.0]}", 20, 30, 3, pixels, id),
        Blurred(pixels, 20, 30, 3, gaussian, gaussian));
  }
}

TEST(GaussianBlurOp, HappensWithProbabilityP) {
  const Bytes pixels = PatternPixels(20, 30, 1);
  int changed = 0;
  for (int64_t id = 0; id < 300; ++id)
    changed += RunOnPixels("- gaussian_blur: {kernel_size: 5, sigma: 2, p: 0.3}", 20, 30, 1, pixels,
                           id) != pixels;
  EXPECT_NEAR(changed, 90, 30);
}

TEST(GaussianBlurOp, AxesMayHaveTheirOwnSize) {
  const Bytes pixels = PatternPixels(20, 30, 1);
  EXPECT_EQ(RunOnPixels("- gaussian_blur: {kernel_size: [5, 1], sigma: 2}", 20, 30, 1, pixels),
            Blurred(pixels, 20, 30, 1, MakeGaussian(5, 2), MakeGaussian(1, 2)));
}

TEST(GaussianBlurOp, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const auto refusal = [&](const std::string& params) {
    const auto result = RunGraph(absl::StrCat("- gaussian_blur: {", params, "}"), record);
    EXPECT_FALSE(result.ok()) << params;
    return std::string(result.status().message());
  };
  EXPECT_THAT(refusal("kernel_size: 4"), HasSubstr("'kernel_size' must be an odd whole number"));
  EXPECT_THAT(refusal("kernel_size: 3.5"), HasSubstr("'kernel_size' must be an odd whole number"));
  EXPECT_THAT(refusal("kernel_size: [3, 2]"), HasSubstr("not 2"));
  EXPECT_THAT(refusal("kernel_size: 999"), HasSubstr("'kernel_size'"));
  EXPECT_THAT(refusal("kernel_size: 3, sigma: [2, 1]"), HasSubstr("low <= high"));
  EXPECT_THAT(refusal("kernel_size: 3, sigma: 0"), HasSubstr("'sigma'"));
}

}  // namespace
}  // namespace feedwater::server
