// median_blur: its parameters and draws. The arithmetic: imaging/median_test.cc.
#include <gmock/gmock.h>

#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MedianBlurOp, ALonelyDotIsGoneAndAnEdgeStays) {
  Bytes pixels(9 * 9, 0);
  for (size_t y = 0; y < 9; ++y) {
    for (size_t x = 5; x < 9; ++x) pixels[9 * y + x] = 200;
  }
  Bytes dotted = pixels;
  dotted[4 * 9 + 2] = 255;
  for (const char* size : {"3", "5"}) {
    EXPECT_EQ(RunOnPixels(absl::StrCat("- median_blur: {kernel_size: ", size, ", p: 1}"), 9, 9, 1,
                          dotted),
              pixels);
  }
}

TEST(MedianBlurOp, TheSizeIsDrawnOfAllOddOnes) {
  const Bytes pixels = PatternPixels(20, 30, 3);
  std::vector<Bytes> by_size;
  for (const char* size : {"3", "5", "7"}) {
    by_size.push_back(RunOnPixels(absl::StrCat("- median_blur: {kernel_size: ", size, ", p: 1}"),
                                  20, 30, 3, pixels));
  }
  std::vector<int> seen(3);
  for (int64_t id = 0; id < 60; ++id) {
    const Bytes made =
        RunOnPixels("- median_blur: {kernel_size: [3, 7], p: 1}", 20, 30, 3, pixels, id);
    const auto which = std::find(by_size.begin(), by_size.end(), made);
    ASSERT_NE(which, by_size.end());
    ++seen[static_cast<size_t>(which - by_size.begin())];
  }
  for (const int times : seen) EXPECT_GT(times, 5);
}

TEST(MedianBlurOp, PIsTheShareOfImagesThatChange) {
  const Bytes pixels = PatternPixels(9, 9, 1);
  int changed = 0;
  for (int64_t id = 0; id < 300; ++id)
    changed += RunOnPixels("- median_blur: {p: 0.3}", 9, 9, 1, pixels, id) != pixels;
  EXPECT_NEAR(changed, 90, 40);
}

TEST(MedianBlurOp, AnImageSmallerThanTheSquareIsItsEdgesGoneOn) {
  EXPECT_EQ(RunOnPixels("- median_blur: {kernel_size: 7, p: 1}", 1, 2, 1, {10, 20}),
            (Bytes{10, 20}));
}

TEST(MedianBlurOp, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  for (const char* params :
       {"kernel_size: 4", "kernel_size: [7, 3]", "kernel_size: 3.5", "kernel_size: 1",
        "kernel_size: 9", "kernel_size: 0", "kernel_size: .nan"}) {
    const auto refused = RunGraph(absl::StrCat("- median_blur: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("test.yaml:4:"), HasSubstr("'kernel_size'")));
  }
  for (const char* p : {"-0.1", "1.1", ".nan"}) {
    const auto refused = RunGraph(absl::StrCat("- median_blur: {p: ", p, "}"), record);
    ASSERT_FALSE(refused.ok()) << p;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("'p'"));
  }
  const auto of_floats = RunGraph("- cast: {dtype: float32}\n- median_blur", record);
  ASSERT_FALSE(of_floats.ok());
  EXPECT_THAT(std::string(of_floats.status().message()),
              HasSubstr("put this op before the one that changes its dtype"));
  // A field that no op made has none of these.
  TestRecord floats, planes;
  const TensorSpec of_float{DType::kFloat32, Layout::kHWC, {2, 2, 1}},
      of_planes{DType::kUInt8, Layout::kCHW, {1, 2, 2}};
  floats.Add("image", of_float, of_float, Bytes(16));
  planes.Add("image", of_planes, of_planes, Bytes(4));
  for (const char* op : {"- median_blur", "- apply: {p: 1, ops: [median_blur]}"}) {
    EXPECT_THAT(std::string(RunGraph(op, floats).status().message()),
                HasSubstr("; put '- cast: {in: image, dtype: uint8}' before it"));
    EXPECT_THAT(std::string(RunGraph(op, planes).status().message()),
                HasSubstr("; put '- layout: {in: image, layout: HWC}' before it"));
  }
  EXPECT_TRUE(RunGraph("- cast: {in: image, dtype: uint8}\n- median_blur", floats).ok());
  EXPECT_TRUE(RunGraph("- layout: {in: image, layout: HWC}\n- median_blur", planes).ok());
  TestRecord four;
  four.AddPixels(1, 1, 4, {1, 2, 3, 4});
  EXPECT_THAT(std::string(RunGraph("- median_blur", four).status().message()),
              HasSubstr("1 or 3 channels"));
}

}  // namespace
}  // namespace feedwater::server
