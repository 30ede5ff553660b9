// scale_jitter: torchvision's sizes.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(ScaleJitter, TheImageFitsIntoTheDrawnShareOfTheTarget) {
  // A bright image on the black canvas of a crop: its extent is its size.
  for (int64_t id = 0; id < 20; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    const double factor = draws.Uniform(0.5, 1.5) * std::min(40.0 / 30, 50.0 / 60);
    const auto height = static_cast<int>(30 * factor), width = static_cast<int>(60 * factor);
    const Bytes out = RunOnPixels(
        "- scale_jitter: {target_size: [40, 50], scale_range: [0.5, 1.5]}\n- center_crop: {size: "
        "100}",
        30, 60, 1, Bytes(1800, 255), id);
    EXPECT_EQ(std::count(out.begin(), out.end(), 255), height * width) << "sample " << id;
  }
}

TEST(ScaleJitter, NoSideShrinksToNothing) {
  const Bytes out = RunOnPixels(
      "- scale_jitter: {target_size: 8, scale_range: [0.1, 0.1]}\n- center_crop: {size: 9}", 1, 60,
      1, Bytes(60, 255));
  EXPECT_EQ(std::count(out.begin(), out.end(), 255), 1);
}

}  // namespace
}  // namespace feedwater::server
