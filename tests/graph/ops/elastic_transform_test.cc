// elastic_transform: smooth displacements of the size that torchvision's have.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

// The image is a ramp, so a value tells where it came from: 2 a pixel.
Bytes Ramp(int side) {
  Bytes pixels;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) pixels.push_back(static_cast<uint8_t>(2 * x + 20));
  }
  return pixels;
}

TEST(ElasticTransform, AlphaOfZeroChangesNothing) {
  const Bytes pixels = PatternPixels(30, 40, 3);
  EXPECT_EQ(RunOnPixels("- elastic_transform: {alpha: 0}", 30, 40, 3, pixels), pixels);
}

TEST(ElasticTransform, DisplacementsAreAsLargeAndAsSmoothAsTorchvisions) {
  // Noise of variance 1/3, blurred by sigma in two dimensions, has variance 1 / (12 pi sigma^2);
  // alpha counts half pixels.
  constexpr int kSide = 100;
  const Bytes ramp = Ramp(kSide);
  double sum = 0, steps = 0;
  int count = 0;
  for (int64_t id = 0; id < 12; ++id) {
    const Bytes out = RunOnPixels("- elastic_transform: {alpha: 300, sigma: 5, fill: 128}", kSide,
                                  kSide, 1, ramp, id);
    for (int y = 20; y < 80; ++y) {
      for (int x = 20; x < 79; ++x) {
        const double moved = (out[y * kSide + x] - ramp[y * kSide + x]) / 2.0,
                     next = (out[y * kSide + x + 1] - ramp[y * kSide + x + 1]) / 2.0;
        sum += moved * moved;
        steps += (next - moved) * (next - moved);
        ++count;
      }
    }
  }
  const double expected = 150 * std::sqrt(1 / (12 * std::acos(-1.0) * 25));
  EXPECT_NEAR(std::sqrt(sum / count), expected, expected / 5);
  EXPECT_LT(std::sqrt(steps / count), expected / 2.5);
}

TEST(ElasticTransform, AxesHaveNumbersOfTheirOwn) {
  const Bytes ramp = Ramp(50);
  // Only along y: nothing to be seen on a ramp along x.
  EXPECT_EQ(RunOnPixels("- elastic_transform: {alpha: [0, 100], sigma: [3, 6]}", 50, 50, 1,
                        ramp)[25 * 50 + 25],
            ramp[25 * 50 + 25]);
  EXPECT_NE(RunOnPixels("- elastic_transform: {alpha: [100, 0], sigma: [3, 6]}", 50, 50, 1, ramp),
            ramp);
}

}  // namespace
}  // namespace feedwater::server
