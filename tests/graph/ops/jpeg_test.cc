// jpeg: its parameters and draws. The pixels: codec/jpeg_round_trip_test.cc.
#include <gmock/gmock.h>

#include "server/codec/jpeg_artefacts.h"
#include "tests/graph/graph_testing.h"

namespace feedwater::server {
namespace {

using namespace graph_testing;  // NOLINT: the tests' own words
using ::testing::AllOf;
using ::testing::HasSubstr;

Bytes Made(const Bytes& pixels, Size size, int channels, int quality) {
  ImageWorkspace workspace;
  Bytes out(pixels.size());
  EXPECT_TRUE(AddJpegArtefacts(pixels.data(), size, channels, quality, out.data(), workspace).ok());
  return out;
}

TEST(JpegOp, ItIsTheDecodedFile) {
  const Bytes pixels = PatternPixels(20, 31, 3);
  TestRecord record;
  record.AddEncoded(EncodedPixels({pixels.data(), {31, 20}, 3}, ".jpg"));  // quality 95
  const auto decoded = RunGraph("- decode\n- center_crop: {size: [20, 31]}", record);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(RunOnPixels("- jpeg: {quality: 95}", 20, 31, 3, pixels), (*decoded)[0]);
}

TEST(JpegOp, TheQualityIsTheSecondDraw) {
  for (const int channels : {1, 3}) {
    const Bytes pixels = PatternPixels(20, 30, channels);
    for (int64_t id = 0; id < 5; ++id) {
      Draws draws(EpochKey(1, 0), static_cast<uint64_t>(id), 0);
      ASSERT_TRUE(draws.Bernoulli(1));
      const auto quality = static_cast<int>(5 + draws.Below(91));
      EXPECT_EQ(RunOnPixels("- jpeg: {quality: [5, 95]}", 20, 30, channels, pixels, id),
                Made(pixels, {30, 20}, channels, quality));
    }
  }
}

TEST(JpegOp, PIsTheShareOfImagesThatChange) {
  const Bytes pixels = PatternPixels(9, 9, 1);
  int changed = 0;
  for (int64_t id = 0; id < 300; ++id)
    changed += RunOnPixels("- jpeg: {quality: 20, p: 0.3}", 9, 9, 1, pixels, id) != pixels;
  EXPECT_NEAR(changed, 90, 40);
}

TEST(JpegOp, WhatItTakesIsKnownBefore) {
  TestRecord record;
  record.AddPixels(100, 200, 3, PatternPixels(100, 200, 3));
  const auto plan = MakePlan(PipelineText("- jpeg: {quality: 50}", "[image]"), record.fields());
  ASSERT_TRUE(plan.ok()) << plan.status();
  SampleWorkspace workspace;
  SampleInput input;
  input.record = record.record();
  EXPECT_GE((*plan)->NeedOf(input, SampleWay::kWhole, workspace).bytes,
            NeedOfJpegArtefacts({200, 100}, 3));
}

TEST(JpegOp, WhatMakesNoSenseIsRefusedWithItsPlace) {
  TestRecord record;
  record.AddPixels(2, 2, 1, {1, 2, 3, 4});
  const std::pair<const char*, const char*> kBad[] = {
      {"quality: 0", "'quality'"},          {"quality: 101", "'quality'"},
      {"quality: [90, 10]", "low <= high"}, {"quality: 50.5", "whole number"},
      {"quality: .nan", "'quality'"},       {"p: 0.5", "'quality'"},
      {"quality: 50, p: -1", "'p'"}};
  for (const auto& [params, text] : kBad) {
    const auto refused = RunGraph(absl::StrCat("- jpeg: {", params, "}"), record);
    ASSERT_FALSE(refused.ok()) << params;
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("test.yaml:4:"), HasSubstr(text)));
  }
  EXPECT_FALSE(RunGraph("- cast: {dtype: float32}\n- jpeg: {quality: 50}", record).ok());
}

}  // namespace
}  // namespace feedwater::server
