// Mixing by weights: the sums of float32 one by one, and every SIMD target gives the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/imaging/mix_kernels.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

constexpr int kCounts[] = {0, 1, 15, 16, 17, 31, 33, 1000};

TEST(Mix, ImagesAreSummedInTheirOrderAndCut) {
  for (const int count : kCounts) {
    std::vector<std::vector<uint8_t>> images;
    for (int i = 0; i < 4; ++i) images.push_back(Pattern(1, count + i, 1));
    const uint8_t* const places[] = {images[0].data(), images[1].data() + 1, images[2].data() + 2,
                                     images[3].data() + 3};
    const float weights[] = {0.3f, 0.25f, 0.125f, 0.4f};  // more than one: it saturates
    const auto out = SameOnEveryTarget([&] {
      std::vector<uint8_t> made(static_cast<size_t>(count) + 1, 77);
      kernels::Mixes().images(places, weights, 4, static_cast<size_t>(count), made.data());
      return made;
    });
    for (int k = 0; k < count; ++k) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) sum += weights[i] * static_cast<float>(places[i][k]);
      EXPECT_EQ(out[k], static_cast<uint8_t>(std::min(sum, 255.0f))) << count << " at " << k;
    }
    EXPECT_EQ(out[count], 77);
  }
}

TEST(Mix, BytesAreRoundedHalfToEven) {
  for (const int count : kCounts) {
    const auto own = Pattern(1, count, 1), partner = Pattern(1, count + 3, 1);
    for (const float weight : {0.0f, 0.25f, 0.5f, 0.7f, 1.0f}) {
      const auto out = SameOnEveryTarget([&] {
        std::vector<uint8_t> made = own;  // in place
        kernels::Mixes().bytes(made.data(), partner.data() + 3, weight, 1 - weight,
                               static_cast<size_t>(count), made.data());
        return made;
      });
      for (int k = 0; k < count; ++k) {
        const float sum =
            weight * static_cast<float>(own[k]) + (1 - weight) * static_cast<float>(partner[k + 3]);
        EXPECT_EQ(out[k], static_cast<uint8_t>(std::nearbyint(sum))) << weight << " at " << k;
      }
    }
  }
}

TEST(Mix, FloatsAreRoundedOneByOne) {
  for (const int count : kCounts) {
    std::vector<float> own, partner;
    for (int k = 0; k < count; ++k) {
      own.push_back(std::sin(static_cast<float>(k)) * 3);
      partner.push_back(std::exp(static_cast<float>(k % 50)));
    }
    const auto out = SameOnEveryTarget([&] {
      std::vector<float> made(own.size());
      kernels::Mixes().floats(own.data(), partner.data(), 0.3f, 0.7f, made.size(), made.data());
      return made;
    });
    for (int k = 0; k < count; ++k) EXPECT_EQ(out[k], 0.3f * own[k] + 0.7f * partner[k]) << k;
  }
}

}  // namespace
}  // namespace feedwater::server
