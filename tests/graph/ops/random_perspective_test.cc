// random_perspective: corners come inwards. Pixels, boxes: imaging/warp_test.cc,
// joint_fields_test.cc.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words

TEST(RandomPerspective, TheCornersStandWhereTheDrawsSay) {
  // Three by three bright pixels in each corner, on a field that the fill cannot be taken for.
  constexpr int kSide = 41;
  Bytes pixels(kSide * kSide, 100);
  for (int y : {0, 1, 2, kSide - 3, kSide - 2, kSide - 1}) {
    for (int x : {0, 1, 2, kSide - 3, kSide - 2, kSide - 1}) pixels[y * kSide + x] = 255;
  }
  for (int64_t id = 0; id < 20; ++id) {
    Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
    EXPECT_TRUE(draws.Bernoulli(1));
    const Bytes out =
        RunOnPixels("- random_perspective: {p: 1, distortion_scale: 0.5, interpolation: nearest}",
                    kSide, kSide, 1, pixels, id);
    for (int corner = 0; corner < 4; ++corner) {
      const auto across = static_cast<int>(draws.Below(11)),
                 down = static_cast<int>(draws.Below(11));
      const int x = corner == 1 || corner == 2 ? kSide - 1 - across : across,
                y = corner >= 2 ? kSide - 1 - down : down;
      uint8_t most = 0;
      for (int dy = -1; dy <= 1; ++dy) {
        for (int dx = -1; dx <= 1; ++dx) {
          const int row = y + dy, column = x + dx;
          if (row >= 0 && row < kSide && column >= 0 && column < kSide)
            most = std::max(most, out[row * kSide + column]);
        }
      }
      EXPECT_EQ(most, 255) << "sample " << id << " corner " << corner;
    }
  }
}

TEST(RandomPerspective, PIsTheShareOfImagesThatMove) {
  const Bytes pixels = PatternPixels(20, 20, 1);
  int moved = 0;
  for (int64_t id = 0; id < 300; ++id)
    moved += RunOnPixels("- random_perspective: {p: 0.3}", 20, 20, 1, pixels, id) != pixels;
  EXPECT_NEAR(moved, 90, 40);
}

TEST(RandomPerspective, AllThatTheDistortionCanDoStaysAnImage) {
  for (int64_t id = 0; id < 50; ++id) {
    for (const auto& [height, width] : {std::pair{2, 2}, {1, 9}, {9, 1}, {4, 6}}) {
      EXPECT_EQ(RunOnPixels("- random_perspective: {p: 1, distortion_scale: 1}", height, width, 1,
                            Bytes(static_cast<size_t>(height * width), 50), id)
                    .size(),
                static_cast<size_t>(height * width));
    }
  }
}

// The horizon may lie between the result's first pixel and the image, which is seen all the same.
TEST(RandomPerspective, TheImageIsSeenWhereverItsCornersCome) {
  const Bytes pixels(120 * 120, 200);
  for (int64_t id = 0; id < 200; ++id) {
    const Bytes out =
        RunOnPixels("- random_perspective: {p: 1, distortion_scale: 0.8}", 120, 120, 1, pixels, id);
    EXPECT_GT(std::count(out.begin(), out.end(), 200), 120 * 120 / 50) << "sample " << id;
  }
}

}  // namespace
}  // namespace feedwater::server
