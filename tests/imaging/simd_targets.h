// Every SIMD target that this machine has gives the same bytes: what tests of imaging/ share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "hwy/targets.h"

namespace feedwater::server::imaging_testing {

// Calls make() with each target in turn and compares what it returns.
template <class Make>
auto SameOnEveryTarget(Make make) {
  const auto expected = make();
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_EQ(make(), expected) << hwy::TargetName(target);
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(targets, 1);
  return expected;
}

// Values that differ from their neighbours' by much and by little.
inline std::vector<uint8_t> Pattern(int height, int width, int channels) {
  std::vector<uint8_t> pixels(static_cast<size_t>(height) * width * channels);
  uint32_t state = 12345;
  for (uint8_t& pixel : pixels)
    pixel = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return pixels;
}

}  // namespace feedwater::server::imaging_testing
