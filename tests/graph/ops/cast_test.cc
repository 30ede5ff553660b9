// cast: the value stays, whatever type holds it.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "server/graph/element.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::ElementsAre;

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename To, typename From>
std::vector<To> Cast(DType from, const std::vector<From>& values, const char* to) {
  TestRecord record;
  const TensorSpec spec{from, Layout::kPlain, {static_cast<int64_t>(values.size())}};
  record.Add("x", spec, spec, BytesOf(values));
  const auto result = RunGraph(absl::StrCat("- cast: {in: x, dtype: ", to, "}"), record, "[x]");
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? As<To>((*result)[0]) : std::vector<To>{};
}

TEST(Cast, BytesKeepTheirValueInEveryType) {
  const std::vector<uint8_t> values = {0, 1, 127, 128, 255};
  EXPECT_THAT((Cast<float, uint8_t>(DType::kUInt8, values, "float32")),
              ElementsAre(0, 1, 127, 128, 255));
  EXPECT_THAT((Cast<double, uint8_t>(DType::kUInt8, values, "float64")),
              ElementsAre(0, 1, 127, 128, 255));
  EXPECT_THAT((Cast<int64_t, uint8_t>(DType::kUInt8, values, "int64")),
              ElementsAre(0, 1, 127, 128, 255));
  EXPECT_THAT((Cast<int8_t, uint8_t>(DType::kUInt8, values, "int8")),
              ElementsAre(0, 1, 127, 127, 127));
  EXPECT_THAT((Cast<uint8_t, uint8_t>(DType::kUInt8, values, "bool")), ElementsAre(0, 1, 1, 1, 1));
  EXPECT_THAT((Cast<uint16_t, uint8_t>(DType::kUInt8, {1, 255}, "float16")),
              ElementsAre(0x3c00, 0x5bf8));
  EXPECT_THAT((Cast<uint16_t, uint8_t>(DType::kUInt8, {1, 255}, "bfloat16")),
              ElementsAre(0x3f80, 0x437f));
}

TEST(Cast, FloatsAreRoundedToEvenAndSaturated) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.5f, 1.5f, 2.5f, -0.6f, 300.0f, -inf, inf, nan};
  EXPECT_THAT((Cast<uint8_t, float>(DType::kFloat32, values, "uint8")),
              ElementsAre(0, 2, 2, 0, 255, 0, 255, 0));
  EXPECT_THAT((Cast<int8_t, float>(DType::kFloat32, values, "int8")),
              ElementsAre(0, 2, 2, -1, 127, -128, 127, 0));
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(),
                    kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT((Cast<int64_t, float>(DType::kFloat32, values, "int64")),
              ElementsAre(0, 2, 2, -1, 300, kMin, kMax, 0));
}

TEST(Cast, LargeIntegersDoNotPassThroughFloats) {
  constexpr int64_t kOdd = (1LL << 60) + 1;
  EXPECT_THAT((Cast<int64_t, int64_t>(DType::kInt64, {kOdd, -kOdd}, "int64")),
              ElementsAre(kOdd, -kOdd));
  EXPECT_THAT(
      (Cast<int32_t, int64_t>(DType::kInt64, {kOdd, -kOdd, 5}, "int32")),
      ElementsAre(std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 5));
}

TEST(Cast, HalvesComeBackExactlyAndAreRoundedToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      EXPECT_EQ(FloatToHalf(value), half) << bits;
    }
    const float brain = BFloat16ToFloat(half);
    if (!std::isnan(brain)) {
      EXPECT_EQ(FloatToBFloat16(brain), half) << bits;
    }
  }
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3c00);      // half way: to the even one below
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);  // half way: to the even one above
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);             // half way to 65536: infinity
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);  // half of the smallest: to zero
  EXPECT_EQ(FloatToHalf(3 * 0x1p-26f), 0x0001);
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

// Twice would give the even neighbour of what lies a little above the middle of two.
TEST(Cast, FloatsOfLessBitsAreRoundedOnce) {
  const std::vector<int64_t> integers = {(1LL << 62) + (1LL << 38) + 1,
                                         -(1LL << 62) - (1LL << 38) - 1, (1LL << 24) + 1};
  EXPECT_THAT((Cast<float, int64_t>(DType::kInt64, integers, "float32")),
              ElementsAre(0x1.000002p62f, -0x1.000002p62f, 0x1p24f));
  EXPECT_THAT(
      (Cast<uint16_t, int64_t>(
          DType::kInt64, {(1LL << 62) + (1LL << 54) + 1, (1LL << 62) + (1LL << 54)}, "bfloat16")),
      ElementsAre(0x5e81, 0x5e80));
  EXPECT_THAT((Cast<uint16_t, int32_t>(DType::kInt32, {(1 << 30) + (1 << 22) + 1, -1}, "bfloat16")),
              ElementsAre(0x4e81, 0xbf80));
  const double inf = std::numeric_limits<double>::infinity();
  // The middles of 1 and the next number, and just above and below them.
  EXPECT_THAT((Cast<uint16_t, double>(DType::kFloat64,
                                      {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 1 + 0x1p-11 - 0x1p-40,
                                       -1 - 0x1p-11 - 0x1p-50, inf, -inf, 1e300, 65519.999999999,
                                       0x1p-25, 0x1.0000000001p-25, 1e-300},
                                      "float16")),
              ElementsAre(0x3c01, 0x3c00, 0x3c00, 0xbc01, 0x7c00, 0xfc00, 0x7c00, 0x7bff, 0, 1, 0));
  EXPECT_THAT((Cast<uint16_t, double>(DType::kFloat64,
                                      {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, 1 + 0x1p-8 - 0x1p-40, inf,
                                       1e300, -0x1.fefffffffffffp127},
                                      "bfloat16")),
              ElementsAre(0x3f81, 0x3f80, 0x3f80, 0x7f80, 0x7f80, 0xff7f));
  EXPECT_TRUE(std::isnan(
      HalfToFloat(Cast<uint16_t, double>(DType::kFloat64, {std::nan("")}, "float16")[0])));
}

}  // namespace
}  // namespace feedwater::server
