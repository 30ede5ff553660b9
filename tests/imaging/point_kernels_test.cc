// The kernels of point programs: every SIMD target gives what Pillow's arithmetic gives, pixel by
// pixel (point_arithmetic.h, which color_jitter_test compares with Pillow's own text).
#include "server/imaging/point_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <random>
#include <vector>

#include "server/imaging/point_arithmetic.h"

namespace feedwater::server::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

// Calls test(kernels) for every target that this CPU has.
template <class F>
void ForEachTarget(F test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(Points().target);
    test(Points());
  }
  hwy::SetSupportedTargetsForTest(0);
}

// All values, and a number of them that is no multiple of any vector.
Bytes Values(size_t count = 1000) {
  Bytes values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return values;
}

constexpr size_t kPlane = 256 * 256;

// All colours with this red.
Bytes Colours(int red) {
  Bytes planes(3 * kPlane);
  for (size_t i = 0; i < kPlane; ++i) {
    planes[i] = static_cast<uint8_t>(red);
    planes[kPlane + i] = static_cast<uint8_t>(i >> 8);
    planes[2 * kPlane + i] = static_cast<uint8_t>(i);
  }
  return planes;
}

// Compares change(planes) with expected(r, g, b), which changes one pixel, over the cube of colours
// in steps of `step` of red.
template <class Change, class Expected>
void CompareColours(int step, Change change, Expected expected) {
  for (int red = 0; red < 256; red += step) {
    Bytes planes = Colours(red);
    const Bytes before = planes;
    change(planes.data());
    for (size_t i = 0; i < kPlane; ++i) {
      uint8_t rgb[3] = {before[i], before[kPlane + i], before[2 * kPlane + i]};
      expected(&rgb[0], &rgb[1], &rgb[2]);
      ASSERT_TRUE(rgb[0] == planes[i] && rgb[1] == planes[kPlane + i] &&
                  rgb[2] == planes[2 * kPlane + i])
          << red << "," << (i >> 8) << "," << (i & 255);
    }
  }
}

TEST(PointKernels, LookUpsGiveTheTablesValues) {
  std::mt19937 random(1);
  Bytes table(256);
  for (uint8_t& v : table) v = static_cast<uint8_t>(random());
  ForEachTarget([&](const PointTable& kernels) {
    const Bytes in = Values();
    Bytes out(in.size() + 1, 77);
    kernels.look_up(table.data(), in.data(), in.size(), out.data());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], table[in[i]]) << i;
    EXPECT_EQ(out.back(), 77);
  });
}

TEST(PointKernels, LinesAndBitsAreWhatTheySay) {
  const Line lines[] = {{0, 12345, 0},  {1, -12345, 0},         {1, 30000, 65536 * 5},
                        {2, -1, 77777}, {0, 32767, -99 * 1000}, {99, 5, -65536 * 200 + 1}};
  const Bits changes[] = {
      {0, 255, 255}, {0, 0, 0xF0}, {128, 255, 255}, {1, 3, 0xFE}, {255, 255, 255}};
  ForEachTarget([&](const PointTable& kernels) {
    const Bytes in = Values();
    Bytes out(in.size());
    for (const Line& line : lines) {
      kernels.line(line, in.data(), in.size(), out.data());
      for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], line.At(in[i])) << int{in[i]};
    }
    for (const Bits& bits : changes) {
      kernels.bits(bits, in.data(), in.size(), out.data());
      for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], bits.At(in[i])) << int{in[i]};
    }
  });
}

TEST(PointKernels, SumsAndExtremesAreOfExactlyTheValuesGiven) {
  ForEachTarget([&](const PointTable& kernels) {
    for (size_t count : {0, 1, 63, 64, 65, 1000}) {
      Bytes in = Values(count);
      for (uint8_t& v : in) v = static_cast<uint8_t>(v / 2 + 20);
      in.insert(in.end(), {0, 255});
      uint64_t sum = 0;
      uint8_t low = 255, high = 0, least = 255, most = 0;
      for (size_t i = 0; i < count; ++i) {
        sum += in[i];
        low = std::min(low, in[i]);
        high = std::max(high, in[i]);
      }
      kernels.extremes(in.data(), count, &least, &most);
      EXPECT_EQ(kernels.sum(in.data(), count), sum);
      EXPECT_EQ(least, low);
      EXPECT_EQ(most, high);
    }
  });
}

TEST(PointKernels, LumaAndSaturationOfAllColoursArePillows) {
  ForEachTarget([&](const PointTable& kernels) {
    CompareColours(
        5, [&](uint8_t* planes) { kernels.luma(planes, kPlane, kPlane, planes); },
        [](uint8_t* r, uint8_t* g, uint8_t* b) { *r = pillow::Luma(*r, *g, *b); });
    for (float factor : {0.0f, 0.3f, 1.37f, 40.0f}) {
      CompareColours(
          51, [&](uint8_t* planes) { kernels.saturate(factor, planes, kPlane, kPlane); },
          [&](uint8_t* r, uint8_t* g, uint8_t* b) {
            const uint8_t grey = pillow::Luma(*r, *g, *b);
            for (uint8_t* value : {r, g, b}) *value = pillow::Blend(grey, *value, factor);
          });
    }
  });
}

TEST(PointKernels, HuesOfAllColoursArePillows) {
  // One shift over all of the cube with the best target, others and the rest over a part.
  CompareColours(
      1, [&](uint8_t* planes) { Points().shift_hue(25, planes, kPlane, kPlane); },
      [&](uint8_t* r, uint8_t* g, uint8_t* b) { pillow::ShiftHue(25, r, g, b); });
  ForEachTarget([&](const PointTable& kernels) {
    for (uint8_t shift : {0, 76, 231}) {
      CompareColours(
          37, [&](uint8_t* planes) { kernels.shift_hue(shift, planes, kPlane, kPlane); },
          [&](uint8_t* r, uint8_t* g, uint8_t* b) { pillow::ShiftHue(shift, r, g, b); });
    }
    CompareColours(
        15, [&](uint8_t* planes) { kernels.to_hsv(planes, kPlane, kPlane); },
        [&](uint8_t* r, uint8_t* g, uint8_t* b) {
          const pillow::Hsv hsv = pillow::ToHsv(*r, *g, *b);
          *r = hsv.hue, *g = hsv.saturation, *b = hsv.value;
        });
  });
}

}  // namespace
}  // namespace feedwater::server::kernels
