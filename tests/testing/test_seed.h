// The seed of a random test: $FEEDWATER_TEST_SEED, or a new one every time. Put it into
// SCOPED_TRACE, so that a failure can be had again.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace feedwater::testing {

inline uint32_t TestSeed() {
  const char* text = std::getenv("FEEDWATER_TEST_SEED");
  if (text != nullptr && *text != '\0')
    return static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
  return std::random_device()();
}

}  // namespace feedwater::testing
