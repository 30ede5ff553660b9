// What a test of hostile images measures: memory at its peak, and how much of it counts.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/base/config.h"
#include "absl/strings/match.h"

namespace feedwater::server::testing {

#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
constexpr bool kSanitized = true;  // both cost more, and say nothing about the product
#else
constexpr bool kSanitized = false;
#endif

// A line of /proc/self/status in bytes.
inline int64_t MemoryOf(const char* line) {
  std::ifstream status("/proc/self/status");
  for (std::string text; std::getline(status, text);) {
    if (absl::StartsWith(text, line)) return std::atoll(text.c_str() + std::strlen(line)) << 10;
  }
  return 0;
}

// From now on VmHWM is the peak since.
inline void StartPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace feedwater::server::testing
