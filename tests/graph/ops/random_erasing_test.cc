// random_erasing: torchvision's part, on pixels and on what normalize made of them.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::HasSubstr;

TEST(RandomErasing, ThePartStandsWhereTheDrawsSay) {
  constexpr int kHeight = 30, kWidth = 40;
  for (int64_t id = 0; id < 20; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    Bytes expected(kHeight * kWidth, 200);
    draws.Bernoulli(1);
    for (int i = 0; i < 10; ++i) {
      const double area = kHeight * kWidth * draws.Uniform(0.02, 0.33);
      const double aspect = std::exp(draws.Uniform(std::log(0.3), std::log(3.3)));
      const auto h = static_cast<int>(std::nearbyint(std::sqrt(area * aspect))),
                 w = static_cast<int>(std::nearbyint(std::sqrt(area / aspect)));
      if (h >= kHeight || w >= kWidth) continue;
      const auto y = static_cast<int>(draws.Below(kHeight - h + 1)),
                 x = static_cast<int>(draws.Below(kWidth - w + 1));
      for (int row = y; row < y + h; ++row) std::fill_n(expected.begin() + row * kWidth + x, w, 7);
      break;
    }
    EXPECT_EQ(RunOnPixels("- random_erasing: {p: 1, value: 7}", kHeight, kWidth, 1,
                          Bytes(kHeight * kWidth, 200), id),
              expected)
        << "sample " << id;
  }
}

TEST(RandomErasing, ChannelsHaveTheirValuesBeforeAndBehindNormalize) {
  TestRecord record;
  record.AddPixels(20, 20, 3, Bytes(1200, 100));
  const auto erased = [&](const std::string& graph) {
    const auto outs = RunGraph(graph, record);
    EXPECT_TRUE(outs.ok()) << outs.status();
    return (*outs)[0];
  };
  const Bytes pixels = erased("- random_erasing: {p: 1, value: [1, 2, 3]}");
  int count = 0;
  for (size_t i = 0; i < 400; ++i) {
    if (pixels[3 * i] == 100) continue;
    ++count;
    EXPECT_EQ(Bytes(&pixels[3 * i], &pixels[3 * i] + 3), (Bytes{1, 2, 3}));
  }
  EXPECT_GT(count, 0);
  // The same part behind normalize, whose number must not change the draws.
  const auto planes =
      As<float>(erased("- normalize: {mean: [100], std: [1], layout: CHW}\n"
                       "- random_erasing: {p: 1, value: [1, 2, 3], draws_as: 7}"));
  int behind = 0;
  for (size_t i = 0; i < 400; ++i) {
    if (planes[i] == 0) continue;
    ++behind;
    EXPECT_EQ(planes[i], 1);
    EXPECT_EQ(planes[400 + i], 2);
    EXPECT_EQ(planes[800 + i], 3);
  }
  EXPECT_GT(behind, 0);
}

TEST(RandomErasing, NoiseIsNormalBehindNormalizeAndBytesBefore) {
  TestRecord record;
  record.AddPixels(60, 60, 1, Bytes(3600, 100));
  const std::string erase =
      "- random_erasing: {p: 1, scale: [0.5, 0.5], ratio: [1, 1], noise: true}";
  const auto numbers =
      As<float>((*RunGraph("- normalize: {mean: [100], std: [1]}\n" + erase, record))[0]);
  double sum = 0, squares = 0, count = 0;
  for (float v : numbers) {
    if (v == 0) continue;
    sum += v, squares += v * v, ++count;
  }
  EXPECT_NEAR(count, 1764, 2);  // 42 x 42
  EXPECT_NEAR(sum / count, 0, 0.15);
  EXPECT_NEAR(squares / count, 1, 0.2);
  const Bytes bytes = (*RunGraph(erase, record))[0];
  EXPECT_LT(*std::min_element(bytes.begin(), bytes.end()), 5);
  EXPECT_GT(*std::max_element(bytes.begin(), bytes.end()), 250);
}

TEST(RandomErasing, AnImageTooSmallForThePartStaysAsItIs) {
  EXPECT_EQ(
      RunOnPixels("- random_erasing: {p: 1, scale: [1, 1], ratio: [1, 1]}", 9, 9, 1, Bytes(81, 5)),
      Bytes(81, 5));
}

}  // namespace
}  // namespace feedwater::server
