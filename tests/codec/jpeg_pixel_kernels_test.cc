// The pixel kernels of the own JPEG decoder against libjpeg-turbo itself and against the formulas,
// for every SIMD target that this machine can run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "server/codec/jpeg/block_guard.h"
#include "server/codec/jpeg/pixel_kernels.h"
#include "server/codec/jpeg/plain_pixels.h"
#include "tests/codec/coefficient_images.h"
#include "tests/codec/test_images.h"

namespace feedwater::server::jpeg {
namespace {

using testing::CoefficientImage;

void ForEachTarget(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(ActivePixelKernels().target);
    body();
    if (::testing::Test::HasFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
}

BlockKind KindOf(const int16_t* block) {
  BlockKind kind = kDcOnly;
  for (int i = 1; i < 64; ++i) {
    if (block[i] == 0) continue;
    if (i / 8 > 3 || i % 8 > 3) return kFull;
    kind = kQuarter;
  }
  return kind;
}

constexpr int kSides[] = {8, 4, 2, 1};

// Transforms a row of blocks, each by its own kind. False as the kernel says.
bool Transform(const std::vector<int16_t>& coefficients, const uint16_t* quant, int side,
               std::vector<uint8_t>* samples, size_t* stride) {
  const size_t blocks = coefficients.size() / 64;
  BlockLists lists;
  lists.Reserve(blocks);
  for (size_t i = 0; i < blocks; ++i)
    lists.Add(KindOf(&coefficients[64 * i]), static_cast<uint16_t>(i));
  *stride = side * blocks;
  samples->assign(side * *stride, 77);
  return ActivePixelKernels().transform_row(coefficients.data(), lists, quant, side,
                                            samples->data(), *stride);
}

// Coefficients of one of many characters: sparse, dense, extreme; of any kind.
void RandomBlock(std::mt19937& random, const uint16_t* quant, int16_t* block) {
  std::fill_n(block, 64, int16_t{0});
  const int shape = static_cast<int>(random() % 4);
  const int reach = shape == 0 ? 1 : shape == 1 ? 4 : 8;
  const int count = shape == 0 ? 1 : 1 + static_cast<int>(random() % (reach * reach));
  const int limit = 1 << (random() % 13);
  for (int i = 0; i < count; ++i) {
    const int at = static_cast<int>(random() % reach) * 8 + static_cast<int>(random() % reach);
    const int value = static_cast<int>(random() % (2 * limit + 1)) - limit;
    block[at] = static_cast<int16_t>(value / quant[at]);
  }
  if (random() % 2 == 0)
    block[0] = static_cast<int16_t>((static_cast<int>(random() % 2048) - 1024) / quant[0]);
}

TEST(JpegTransform, EveryTargetGivesTheSamplesAndTheVerdictOfTheBook) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ForEachTarget([&] {
    std::mt19937 random(seed);
    int accepted = 0, refused = 0;
    for (int round = 0; round < 4000; ++round) {
      uint16_t quant[64];
      const int largest = 1 + static_cast<int>(random() % 255);
      for (uint16_t& step : quant) step = static_cast<uint16_t>(1 + random() % largest);
      const size_t blocks = 1 + random() % 21;
      std::vector<int16_t> coefficients(64 * blocks);
      for (size_t i = 0; i < blocks; ++i) RandomBlock(random, quant, &coefficients[64 * i]);
      if (round % 50 == 0) coefficients[random() % coefficients.size()] = -32768;
      const int side = kSides[round % 4];
      std::vector<uint8_t> expected(side * side * blocks), samples;
      bool ok = true;
      for (size_t i = 0; i < blocks; ++i) {
        ok = ok && TransformBlockPlain(&coefficients[64 * i], quant, side, &expected[side * i],
                                       static_cast<int>(side * blocks));
      }
      size_t stride;
      ASSERT_EQ(Transform(coefficients, quant, side, &samples, &stride), ok)
          << "round " << round << " side " << side;
      ++(ok ? accepted : refused);
      if (ok) {
        ASSERT_EQ(samples, expected) << "round " << round << " side " << side;
      }
    }
    EXPECT_GT(accepted, 500);
    EXPECT_GT(refused, 100);
  });
}

TEST(JpegTransform, BlocksJustBeyondAGuardAreRefusedAndJustWithinAreNot) {
  ForEachTarget([&] {
    for (size_t blocks : {1, 2, 3, 8, 9}) {
      for (size_t at = 0; at < blocks; ++at) {
        uint16_t quant[64];
        std::fill_n(quant, 64, uint16_t{1});
        std::vector<int16_t> coefficients(64 * blocks);
        std::vector<uint8_t> samples;
        size_t stride;
        int16_t* block = &coefficients[64 * at];
        int side = 8;
        const auto accepts = [&] {
          return Transform(coefficients, quant, side, &samples, &stride);
        };
        for (const int smaller : kSides) {
          side = smaller;
          block[0] = 4083;  // (4083 + 4) >> 3 = 510
          EXPECT_TRUE(accepts());
          block[0] = 4084;
          EXPECT_FALSE(accepts());
          block[0] = -4092;
          EXPECT_TRUE(accepts());
          block[0] = -4093;
          EXPECT_FALSE(accepts());
        }
        side = 8;
        block[0] = 0;
        // A column that sums up to 5,800 and whose values stay small: alternate signs.
        for (int y = 0; y < 4; ++y) block[8 * (2 * y + 1) + 7] = y % 2 == 0 ? 900 : -900;
        const bool small = TransformBlockPlain(block, quant, 8, nullptr, 8);
        EXPECT_EQ(accepts(), small);
        block[8 * 4 + 7] = 5800 - 3600;
        EXPECT_EQ(accepts(), TransformBlockPlain(block, quant, 8, nullptr, 8));
        block[8 * 4 + 7] = 5801 - 3600;
        EXPECT_FALSE(accepts());
        // A product that leaves int16 and comes back small.
        std::fill_n(block, 64, int16_t{0});
        std::fill_n(quant, 64, uint16_t{2});
        block[9] = -32768;
        EXPECT_FALSE(accepts());
        block[9] = 0;
        block[63] = 32767;
        EXPECT_FALSE(accepts());
        // The one number whose magnitude is no int16, times 1.
        std::fill_n(block, 64, int16_t{0});
        std::fill_n(quant, 64, uint16_t{1});
        for (int place : {1, 9, 63}) {
          block[place] = -32768;
          EXPECT_FALSE(accepts());
          block[place] = 0;
        }
      }
    }
  });
}

TEST(JpegTransform, GivesTheSamplesOfLibjpegTurboForArbitraryCoefficients) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    CoefficientImage image;
    const int blocks = 1 + static_cast<int>(random() % 40);
    const int largest = 1 + static_cast<int>(random() % 255);
    image.shape.size = {8 * blocks, 8};
    image.shape.components = 1;
    image.coefficients[0].resize(64 * blocks);
    for (uint16_t& step : image.quant[0]) step = static_cast<uint16_t>(1 + random() % largest);
    for (int i = 0; i < blocks; ++i) {
      int16_t* block = &image.coefficients[0][64 * i];
      do {
        RandomBlock(random, image.quant[0], block);
        for (int k = 0; k < 64; ++k) block[k] = std::clamp<int16_t>(block[k], -1023, 1023);
      } while (!TransformBlockPlain(block, image.quant[0], 8, nullptr, 8));
    }
    const std::string encoded = testing::EncodeCoefficients(image);
    for (const int side : kSides) {
      testing::Pixels decoded;
      long warnings = 0;
      testing::PlainDecoder decoder;
      ASSERT_TRUE(decoder.Decode(encoded, &decoded, &warnings, 8 / side));
      ASSERT_EQ(warnings, 0);
      ForEachTarget([&] {
        std::vector<uint8_t> samples;
        size_t stride;
        // What the guards accept whole, they accept at every size.
        ASSERT_TRUE(Transform(image.coefficients[0], image.quant[0], side, &samples, &stride));
        for (size_t i = 0; i < samples.size(); ++i) {
          ASSERT_EQ(samples[i], decoded.bytes[3 * i])
              << "round " << round << ", side " << side << ", sample " << i;
        }
      });
    }
    ++compared;
  }
  EXPECT_EQ(compared, 200);
}

// The argument of block_guard.h, tried where it is tight: blocks at the edge of the guards are
// accepted at every size, and no sample of a smaller one leaves the range by more than the margin.
TEST(JpegTransform, WhatIsAcceptedWholeIsAcceptedAtEverySize) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  uint16_t quant[64];
  std::fill_n(quant, 64, uint16_t{1});
  int close = 0;
  for (int round = 0; round < 20'000; ++round) {
    // A flat part at the edge of the range, an edge through the middle, and noise.
    int16_t block[64];
    RandomBlock(random, quant, block);
    for (int i = 1; i < 64; ++i) block[i] = static_cast<int16_t>(block[i] / 16);
    // The largest DC with which it is accepted.
    int low = -4200, high = 4200;
    block[0] = 0;
    if (!TransformBlockPlain(block, quant, 8, nullptr, 8)) continue;
    low = 0;
    const int sign = random() % 2 == 0 ? 1 : -1;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      block[0] = static_cast<int16_t>(sign * middle);
      (TransformBlockPlain(block, quant, 8, nullptr, 8) ? low : high) = middle;
    }
    block[0] = static_cast<int16_t>(sign * low);
    close += low > 3000;
    for (const int side : kSides) {
      ASSERT_TRUE(TransformBlockPlain(block, quant, side, nullptr, 8))
          << "round " << round << " side " << side;
    }
  }
  EXPECT_GT(close, 1'000);
}

TEST(JpegUpsampling, EveryStretchOfARowIsThatOfTheFormulas) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ForEachTarget([&] {
    std::mt19937 random(seed);
    for (int round = 0; round < 3000; ++round) {
      const int width = 3 + static_cast<int>(random() % (round % 10 == 0 ? 1500 : 90));
      const int pixels = 2 * width - static_cast<int>(random() % 2);
      const int x0 = static_cast<int>(random() % pixels);
      const int count = 1 + static_cast<int>(random() % (pixels - x0));
      // Exactly the samples that the contract promises, anything behind them.
      const int first = std::max(0, (x0 % 2 == 0 ? x0 / 2 - 1 : x0 / 2));
      const int last = std::min(width - 1, (x0 + count) / 2);
      std::vector<uint8_t> near(last - first + 1), far(near.size());
      for (auto& v : near) v = static_cast<uint8_t>(random());
      for (auto& v : far) v = static_cast<uint8_t>(random());
      std::vector<uint8_t> near_padded = near, far_padded = far;
      near_padded.resize(near.size() + kRowPadding, 99);
      far_padded.resize(far.size() + kRowPadding, 201);
      std::vector<uint8_t> expected(count), out(count + kRowPadding);
      const auto& kernels = ActivePixelKernels();
      UpsampleH2V1Plain(near.data(), first, width, x0, count, expected.data());
      kernels.upsample_h2v1(near_padded.data(), first, width, x0, count, out.data());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << round;
      UpsampleH2V2Plain(near.data(), far.data(), first, width, x0, count, expected.data());
      kernels.upsample_h2v2(near_padded.data(), far_padded.data(), first, width, x0, count,
                            out.data());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << round;
      std::vector<uint8_t> expected_rows(near.size());
      for (const bool below : {false, true}) {
        UpsampleH1V2Plain(near.data(), far.data(), below, near.size(), expected_rows.data());
        out.assign(near.size() + kRowPadding, 0);
        kernels.upsample_h1v2(near_padded.data(), far_padded.data(), below, near.size(),
                              out.data());
        ASSERT_TRUE(std::equal(expected_rows.begin(), expected_rows.end(), out.begin())) << round;
      }
    }
  });
}

TEST(JpegColour, AllSixteenMillionInputsGiveTheColourOfTheFormulas) {
  ForEachTarget([&] {
    constexpr size_t kCount = 65536;
    std::vector<uint8_t> y(kCount + kRowPadding), cb(y.size()), cr(y.size());
    std::vector<uint8_t> rgb(3 * kCount + kRowPadding), expected(3 * kCount);
    for (int luma = 0; luma < 256; ++luma) {
      for (size_t i = 0; i < kCount; ++i) {
        y[i] = static_cast<uint8_t>(luma);
        cb[i] = static_cast<uint8_t>(i >> 8);
        cr[i] = static_cast<uint8_t>(i);
      }
      ActivePixelKernels().ycc_to_rgb(y.data(), cb.data(), cr.data(), kCount, rgb.data());
      YccToRgbPlain(y.data(), cb.data(), cr.data(), kCount, expected.data());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), rgb.begin())) << "luma " << luma;
    }
  });
}

TEST(JpegColour, RowsOfAnyLengthAreConvertedWholeAndNoFurther) {
  ForEachTarget([&] {
    std::mt19937 random(3);
    for (size_t count = 1; count < 300; ++count) {
      std::vector<uint8_t> y(count + kRowPadding), cb(y.size()), cr(y.size());
      for (auto* plane : {&y, &cb, &cr}) {
        for (auto& v : *plane) v = static_cast<uint8_t>(random());
      }
      std::vector<uint8_t> rgb(3 * count + kRowPadding), expected(3 * count);
      ActivePixelKernels().ycc_to_rgb(y.data(), cb.data(), cr.data(), count, rgb.data());
      YccToRgbPlain(y.data(), cb.data(), cr.data(), count, expected.data());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), rgb.begin())) << count;
      ActivePixelKernels().gray_to_rgb(y.data(), count, rgb.data());
      GrayToRgbPlain(y.data(), count, expected.data());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), rgb.begin())) << count;
    }
  });
}

}  // namespace
}  // namespace feedwater::server::jpeg
