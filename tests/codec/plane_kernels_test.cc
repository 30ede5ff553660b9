// Rows of pixels from right to left: of every size of pixel, the same bytes on every SIMD target.
#include "server/codec/plane_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

TEST(Planes, APixelOfAnySizeIsMirroredWhole) {
  for (const int size : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
    for (const int count : {0, 1, 2, 5, 6, 15, 16, 17, 33, 224}) {
      const auto row = Pattern(1, count, size);
      const auto out = SameOnEveryTarget([&] {
        std::vector<uint8_t> made(row.size() + 1, 77);
        kernels::Planes().mirror(row.data(), static_cast<size_t>(count), static_cast<size_t>(size),
                                 made.data());
        return made;
      });
      for (int x = 0; x < count; ++x) {
        for (int i = 0; i < size; ++i) {
          ASSERT_EQ(out[x * size + i], row[(count - 1 - x) * size + i])
              << count << " pixels of " << size << ", at " << x;
        }
      }
      EXPECT_EQ(out.back(), 77);
    }
  }
}

}  // namespace
}  // namespace feedwater::server
