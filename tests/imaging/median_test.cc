// Medians against OpenCV's, and the networks against every picture that could prove them wrong.
#include <gtest/gtest.h>

#include <opencv2/imgproc.hpp>

#include "server/imaging/filter.h"
#include "server/imaging/median_kernels.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

using Bytes = std::vector<uint8_t>;

Bytes Medians(const Bytes& pixels, Size size, int channels, int side) {
  std::vector<std::byte> scratch(MedianScratch(size, channels, side));
  Bytes out(pixels.size());
  EXPECT_TRUE(
      MedianBlur(pixels.data(), size, channels, side, scratch.data(), clock, out.data()).ok());
  return out;
}

TEST(MedianBlur, IsOpenCvs) {
  for (const Size size : {Size{53, 31}, Size{1, 1}, Size{2, 40}, Size{5, 3}, Size{200, 6}}) {
    for (const int channels : {1, 3, 4}) {
      Bytes pixels = Pattern(size.height, size.width, channels), expected(pixels.size());
      for (const int side : {3, 5, 7}) {
        const cv::Mat in(size.height, size.width, CV_8UC(channels), pixels.data());
        cv::Mat out(size.height, size.width, CV_8UC(channels), expected.data());
        cv::medianBlur(in, out, side);
        ASSERT_EQ(out.data, expected.data());
        EXPECT_EQ(SameOnEveryTarget([&] { return Medians(pixels, size, channels, side); }),
                  expected)
            << size.width << "x" << size.height << "x" << channels << " by " << side;
      }
    }
  }
}

// A network of minima and maxima that is right for all zeros and ones is right for all numbers. The
// columns of a square reach the selection sorted, so their numbers of ones tell all; that columns
// are sorted, the other test's pictures show.
TEST(MedianBlur, TheNetworksAreRightForAllColumnsOfZerosAndOnes) {
  for (const int side : {3, 5, 7}) {
    int64_t squares = 1;
    for (int c = 0; c < side; ++c) squares *= side + 1;
    constexpr int64_t kAtOnce = 4096;
    for (int64_t first = 0; first < squares; first += kAtOnce) {
      const int64_t count = std::min(kAtOnce, squares - first);
      const auto width = static_cast<size_t>(count * side);
      Bytes rows(static_cast<size_t>(side) * width), planes(kernels::MedianPlanes(side, width, 1)),
          out(width);
      std::vector<bool> expected(static_cast<size_t>(count));
      for (int64_t k = 0; k < count; ++k) {
        int64_t rest = first + k;
        int total = 0;
        for (int c = 0; c < side; ++c, rest /= side + 1) {
          const auto ones = static_cast<int>(rest % (side + 1));
          total += ones;
          for (int y = 0; y < ones; ++y)
            rows[static_cast<size_t>(y) * width + static_cast<size_t>(k * side + c)] = 1;
        }
        expected[static_cast<size_t>(k)] = 2 * total > side * side;
      }
      const uint8_t* at[kernels::kMostMedianSide];
      for (int y = 0; y < side; ++y) at[y] = rows.data() + static_cast<size_t>(y) * width;
      kernels::Medians().median_row(at, side, width, 1, planes.data(), out.data());
      for (int64_t k = 0; k < count; ++k) {
        ASSERT_EQ(out[static_cast<size_t>(k * side + side / 2)], expected[static_cast<size_t>(k)])
            << side << ": square " << first + k;
      }
    }
  }
}

}  // namespace
}  // namespace feedwater::server
