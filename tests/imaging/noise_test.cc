// Noise: the generator is Philox, the numbers are normal, and every SIMD target gives the same
// bytes.
#include "server/imaging/noise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/base/philox.h"
#include "server/imaging/noise_kernels.h"
#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

using Bytes = std::vector<uint8_t>;

TEST(Noise, WordsAreThoseOfPhilox) {
  const uint32_t key[2] = {0x12345678, 0xFEDCBA98};
  const auto words = SameOnEveryTarget([&] {
    std::vector<uint32_t> made(kernels::kNoiseBlock);
    kernels::Noises().words(key, 0xFFFFFFF0u, made.data());
    return made;
  });
  for (uint32_t block = 0; block < kernels::kNoiseBlock / 4; ++block) {
    const PhiloxCounter expected = Philox4x32({0xFFFFFFF0u + block, 0, 0, 0}, {key[0], key[1]});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words[4 * block + i], expected[i]) << block;
  }
}

TEST(Noise, QuantilesAreThoseOfTheNormalDistribution) {
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-9);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963985, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.025), -1.959963985, 1e-8);
  EXPECT_NEAR(NormalQuantile(1e-6), -4.753424309, 1e-8);
}

TEST(Noise, HasItsMeanAndItsDeviation) {
  const NormalNoise noise(5, 12);
  const Bytes pixels(200000, 120);
  const Bytes out = SameOnEveryTarget([&] {
    Bytes made(pixels.size());
    EXPECT_TRUE(noise.Add(pixels.data(), pixels.size(), {1, 2}, clock, made.data()).ok());
    return made;
  });
  double sum = 0, squares = 0, fourth = 0, neighbours = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double v = out[i] - 125.0;
    sum += v, squares += v * v, fourth += v * v * v * v;
    if (i > 0) neighbours += v * (out[i - 1] - 125.0);
  }
  const auto count = static_cast<double>(out.size());
  EXPECT_NEAR(sum / count, 0, 0.15);
  EXPECT_NEAR(std::sqrt(squares / count), 12, 0.1);
  EXPECT_NEAR(fourth / count / std::pow(squares / count, 2), 3, 0.05);
  EXPECT_NEAR(neighbours / squares, 0, 0.01);
}

TEST(Noise, ValuesStayBytes) {
  const NormalNoise noise(0, 255);
  for (size_t count : {0u, 1u, 511u, 513u, 5000u}) {
    const Bytes pixels = Pattern(1, static_cast<int>(count), 1);
    const Bytes out = SameOnEveryTarget([&] {
      Bytes made(count + 8, 33);
      EXPECT_TRUE(
          noise.Add(pixels.data(), count, {7, count > 0 ? 1u : 0u}, clock, made.data()).ok());
      return made;
    });
    for (size_t i = count; i < out.size(); ++i) EXPECT_EQ(out[i], 33) << "written behind the image";
  }
  const NormalNoise none(0, 0);
  const Bytes pixels = Pattern(3, 300, 3);
  Bytes out(pixels.size());
  EXPECT_TRUE(none.Add(pixels.data(), pixels.size(), {1, 1}, clock, out.data()).ok());
  EXPECT_EQ(out, pixels);
}

}  // namespace
}  // namespace feedwater::server
