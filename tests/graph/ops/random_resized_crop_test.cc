// random_resized_crop: torchvision's algorithm, written out a second time here, and its
// distribution.
#include <gmock/gmock.h>

#include <cmath>

#include "server/codec/image.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

std::unique_ptr<Op> MakeOp(const std::string& params) {
  const auto node = ParseYaml(params, "params");
  auto op = Registry<OpEntry>::Get().Find("random_resized_crop")->create(*node, {});
  EXPECT_TRUE(op.ok()) << op.status();
  return *std::move(op);
}

Rect Chosen(const Op& op, Size size, uint64_t id) {
  ImageTransform transform(size);
  EXPECT_TRUE(
      op.AsGeometry()->Compose(0, Draws(EpochKey(3, 0), id, 0), ImageLimits{}, &transform).ok());
  return transform.geometry().crop;
}

// torchvision.transforms.RandomResizedCrop.get_params, line by line.
Rect Reference(Size size, double low, double high, double low_ratio, double high_ratio,
               Draws draws) {
  const double area = static_cast<double>(size.width) * size.height;
  for (int i = 0; i < 10; ++i) {
    const double target_area = area * (low + draws.Uniform() * (high - low));
    const double log_low = std::log(low_ratio), log_high = std::log(high_ratio);
    const double aspect_ratio = std::exp(log_low + draws.Uniform() * (log_high - log_low));
    const int w = static_cast<int>(std::nearbyint(std::sqrt(target_area * aspect_ratio)));
    const int h = static_cast<int>(std::nearbyint(std::sqrt(target_area / aspect_ratio)));
    if (0 < w && w <= size.width && 0 < h && h <= size.height) {
      const int y = static_cast<int>(draws.Below(size.height - h + 1));
      const int x = static_cast<int>(draws.Below(size.width - w + 1));
      return {x, y, w, h};
    }
  }
  const double in_ratio = static_cast<double>(size.width) / size.height;
  int w = size.width, h = size.height;
  if (in_ratio < low_ratio) {
    h = static_cast<int>(std::nearbyint(w / low_ratio));
  } else if (in_ratio > high_ratio) {
    w = static_cast<int>(std::nearbyint(h * high_ratio));
  }
  return {(size.width - w) / 2, (size.height - h) / 2, w, h};
}

TEST(RandomResizedCrop, ChoosesAsTorchvisionDoesFromTheSameDraws) {
  const std::unique_ptr<Op> op = MakeOp("{size: 8}");
  for (const Size size :
       {Size{500, 375}, Size{375, 500}, Size{1, 1}, Size{3, 200}, Size{640, 20}, Size{2, 2}}) {
    for (uint64_t id = 0; id < 500; ++id) {
      ASSERT_EQ(Chosen(*op, size, id),
                Reference(size, 0.08, 1, 0.75, 4.0 / 3, Draws(EpochKey(3, 0), id, 0)))
          << size.width << "x" << size.height << " sample " << id;
    }
  }
}

TEST(RandomResizedCrop, AGoldenChoiceByHand) {
  // A long strip fits no try: the ratio is limited to 4/3, so 640x20 gives round(20 * 4/3) = 27
  // columns from (640 - 27) / 2.
  const std::unique_ptr<Op> op = MakeOp("{size: 8, scale: [1.0, 1.0]}");
  EXPECT_EQ(Chosen(*op, {640, 20}, 1), (Rect{306, 0, 27, 20}));
  EXPECT_EQ(Chosen(*op, {20, 640}, 1), (Rect{0, 306, 20, 27}));
}

TEST(RandomResizedCrop, TheResultHasTheSizeAndTheCropsPixels) {
  // With the whole image as the only choice and no scaling the pixels stay.
  EXPECT_THAT(RunOnPixels("- random_resized_crop: {size: 2, scale: [1, 1], ratio: [1, 1]}", 2, 2, 1,
                          {1, 2, 3, 4}),
              ElementsAre(1, 2, 3, 4));
}

TEST(RandomResizedCrop, AreaIsUniformRatioLogUniformAndPlaceUniform) {
  // A large square image, so that rounding and rejection matter little; 5 standard deviations of
  // each mean.
  const std::unique_ptr<Op> op = MakeOp("{size: 8, scale: [0.1, 0.5], ratio: [0.5, 2.0]}");
  constexpr int kSamples = 20000, kSide = 4000;
  double area = 0, area_squares = 0, log_ratio = 0, log_ratio_squares = 0, place = 0;
  for (uint64_t id = 0; id < kSamples; ++id) {
    const Rect crop = Chosen(*op, {kSide, kSide}, id);
    const double share = static_cast<double>(crop.width) * crop.height / (1.0 * kSide * kSide);
    const double ratio = std::log(static_cast<double>(crop.width) / crop.height);
    ASSERT_GE(share, 0.0999);
    ASSERT_LE(share, 0.5001);
    ASSERT_LE(std::abs(ratio), std::log(2.0) + 1e-3);
    area += share;
    area_squares += share * share;
    log_ratio += ratio;
    log_ratio_squares += ratio * ratio;
    place += (crop.x + 0.5) / (kSide - crop.width + 1);
  }
  const auto sigma = [](double range) { return range / std::sqrt(12.0); };
  const double n = kSamples, mean_area = area / n, mean_ratio = log_ratio / n;
  EXPECT_NEAR(mean_area, 0.3, 5 * sigma(0.4) / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(area_squares / n - mean_area * mean_area), sigma(0.4), 0.003);
  EXPECT_NEAR(mean_ratio, 0, 5 * sigma(2 * std::log(2.0)) / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(log_ratio_squares / n - mean_ratio * mean_ratio), sigma(2 * std::log(2.0)),
              0.01);
  EXPECT_NEAR(place / n, 0.5, 5 * sigma(1) / std::sqrt(n));
}

}  // namespace
}  // namespace feedwater::server
