// Filters against their definitions in float64, and the same bytes on every SIMD target.
#include "server/imaging/filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/imaging/simd_targets.h"

namespace feedwater::server {
namespace {

WorkClock clock;  // that never says that it is enough

using imaging_testing::Pattern;
using imaging_testing::SameOnEveryTarget;

using Bytes = std::vector<uint8_t>;

int Mirror(int i, int n) {
  while (n > 1 && (i < 0 || i >= n)) i = i < 0 ? -i : 2 * (n - 1) - i;
  return n == 1 ? 0 : i;
}

std::vector<double> Weights(int kernel, double sigma) {
  std::vector<double> weights;
  double sum = 0;
  for (int k = -(kernel / 2); k <= kernel / 2; ++k) {
    weights.push_back(std::exp(-0.5 * (k / sigma) * (k / sigma)));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(GaussianBlur, IsTheWeightedSumOfAMirroredImage) {
  for (const Size size : {Size{53, 31}, Size{1, 1}, Size{2, 40}, Size{5, 3}}) {
    for (int channels : {1, 3, 4}) {
      for (const auto& [kernel, sigma] :
           {std::pair{23, 2.0}, {3, 0.1}, {5, 1.1}, {41, 9.0}, {1, 3.0}}) {
        const Bytes pixels = Pattern(size.height, size.width, channels);
        const Gaussian gaussian = MakeGaussian(kernel, sigma);
        const Bytes out = SameOnEveryTarget([&] {
          std::vector<std::byte> scratch(
              BlurScratch(size, channels, gaussian.radius, gaussian.radius));
          Bytes made(pixels.size());
          EXPECT_TRUE(GaussianBlur(pixels.data(), size, channels, gaussian, gaussian,
                                   scratch.data(), clock, made.data())
                          .ok());
          return made;
        });
        const std::vector<double> weights = Weights(kernel, sigma);
        double most = 0;
        for (int y = 0; y < size.height; ++y) {
          for (int x = 0; x < size.width; ++x) {
            for (int c = 0; c < channels; ++c) {
              double sum = 0;
              for (int j = 0; j < kernel; ++j) {
                for (int i = 0; i < kernel; ++i) {
                  const int row = Mirror(y + j - kernel / 2, size.height),
                            column = Mirror(x + i - kernel / 2, size.width);
                  sum +=
                      weights[j] * weights[i] * pixels[(row * size.width + column) * channels + c];
                }
              }
              most = std::max(most, std::abs(sum - out[(y * size.width + x) * channels + c]));
            }
          }
        }
        EXPECT_LE(most, 0.7) << size.width << "x" << size.height << " kernel " << kernel;
      }
    }
  }
}

TEST(GaussianBlur, AnEvenImageStaysWhatItIs) {
  for (double sigma : {0.1, 0.7, 2.0, 30.0}) {
    for (uint8_t value : {0, 1, 128, 254, 255}) {
      const Gaussian gaussian = MakeGaussian(201, sigma);
      const Size size{300, 4};
      std::vector<std::byte> scratch(BlurScratch(size, 1, gaussian.radius, gaussian.radius));
      const Bytes pixels(1200, value);
      Bytes out(1200);
      EXPECT_TRUE(GaussianBlur(pixels.data(), size, 1, gaussian, gaussian, scratch.data(), clock,
                               out.data())
                      .ok());
      EXPECT_EQ(out, pixels) << sigma;
    }
  }
}

TEST(GaussianBlur, OfFloatsMayWorkInPlace) {
  const Size size{37, 19};
  const Gaussian x = MakeGaussian(11, 2), y = MakeGaussian(7, 1);
  std::vector<float> plane(37 * 19);
  for (size_t i = 0; i < plane.size(); ++i) plane[i] = static_cast<float>((i * 7919) % 101) - 50;
  const auto out = SameOnEveryTarget([&] {
    std::vector<std::byte> scratch(BlurFloatScratch(size, x.radius, y.radius));
    std::vector<float> made = plane;
    EXPECT_TRUE(GaussianBlur(made.data(), size, x, y, scratch.data(), clock, made.data()).ok());
    return made;
  });
  const auto across = Weights(11, 2), down = Weights(7, 1);
  for (int row = 0; row < 19; ++row) {
    for (int column = 0; column < 37; ++column) {
      double sum = 0;
      for (int j = 0; j < 7; ++j) {
        for (int i = 0; i < 11; ++i)
          sum += down[j] * across[i] *
                 plane[Mirror(row + j - 3, 19) * 37 + Mirror(column + i - 5, 37)];
      }
      EXPECT_NEAR(out[row * 37 + column], sum, 0.01);
    }
  }
}

TEST(AdjustSharpness, IsPillowsSmoothAndBlend) {
  for (const Size size : {Size{35, 12}, Size{3, 3}, Size{2, 9}, Size{1, 1}}) {
    for (int channels : {1, 3}) {
      for (float factor : {0.0f, 0.5f, 1.0f, 2.0f, 13.7f}) {
        const Bytes pixels = Pattern(size.height, size.width, channels);
        const Bytes out = SameOnEveryTarget([&] {
          Bytes made(pixels.size());
          EXPECT_TRUE(
              AdjustSharpness(pixels.data(), size, channels, factor, clock, made.data()).ok());
          return made;
        });
        for (int y = 0; y < size.height; ++y) {
          for (int x = 0; x < size.width * channels; ++x) {
            const int stride = size.width * channels, at = y * stride + x;
            int smooth = pixels[at];
            const bool is_edge =
                y == 0 || y == size.height - 1 || x < channels || x >= stride - channels;
            if (!is_edge) {
              int sum = 4 * pixels[at];
              for (int dy : {-stride, 0, stride}) {
                for (int dx : {-channels, 0, channels}) sum += pixels[at + dy + dx];
              }
              smooth = static_cast<int>(sum / 13.0 + 0.5);
            }
            const float mixed =
                static_cast<float>(smooth) + factor * static_cast<float>(pixels[at] - smooth);
            EXPECT_EQ(out[at], static_cast<uint8_t>(std::clamp(mixed, 0.0f, 255.0f)));
          }
        }
      }
    }
  }
}

TEST(MotionBlur, IsTheMeanOfThePixelsOnTheLine) {
  for (const Size size : {Size{45, 17}, Size{1, 1}, Size{40, 2}}) {
    for (const auto& [dx, dy] : {std::pair{1.0, 0.0}, {0.0, -1.0}, {1.0, 0.4}, {-0.7, 1.0}}) {
      for (int length : {3, 7, 17, 63}) {
        const Bytes pixels = Pattern(size.height, size.width, 3);
        const Bytes out = SameOnEveryTarget([&] {
          std::vector<std::byte> scratch(MotionScratch(size, 3, length));
          Bytes made(pixels.size());
          EXPECT_TRUE(
              MotionBlur(pixels.data(), size, 3, length, dx, dy, scratch.data(), clock, made.data())
                  .ok());
          return made;
        });
        for (int y = 0; y < size.height; ++y) {
          for (int x = 0; x < size.width; ++x) {
            int sum = length / 2;
            for (int k = -(length / 2); k <= length / 2; ++k) {
              const int row = Mirror(y + static_cast<int>(std::lround(k * dy)), size.height),
                        column = Mirror(x + static_cast<int>(std::lround(k * dx)), size.width);
              sum += pixels[(row * size.width + column) * 3 + 1];
            }
            ASSERT_EQ(out[(y * size.width + x) * 3 + 1], sum / length) << length;
          }
        }
      }
    }
  }
}

TEST(MotionBlur, TheMeanIsExactForEveryLength) {
  // Every sum that there can be, of pixels that are alike but one.
  for (int length = 3; length <= kMaxMotion; length += 2) {
    for (int value = 0; value < 256; ++value) {
      Bytes pixels(static_cast<size_t>(2 * length + 1), static_cast<uint8_t>(value));
      for (int other : {0, 1, 128, 255}) {
        pixels[static_cast<size_t>(length)] = static_cast<uint8_t>(other);
        const Size size{2 * length + 1, 1};
        std::vector<std::byte> scratch(MotionScratch(size, 1, length));
        Bytes out(pixels.size());
        EXPECT_TRUE(
            MotionBlur(pixels.data(), size, 1, length, 1, 0, scratch.data(), clock, out.data())
                .ok());
        const int sum = value * (length - 1) + other;
        ASSERT_EQ(out[static_cast<size_t>(length)], (sum + length / 2) / length);
      }
    }
  }
}

}  // namespace
}  // namespace feedwater::server
