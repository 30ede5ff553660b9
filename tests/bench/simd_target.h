// Holds Highway to what a lesser CPU has, so that one machine shows the figures of several.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace feedwater::testing {

// Allows the target NAME ("AVX2", "SSE4", ...) and lesser ones. Ends the program where this CPU or
// compiler has no such target.
inline void HoldToTarget(const char* name) {
  int64_t allowed = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {  // the best one first
    if (std::strcmp(hwy::TargetName(target), name) == 0 || allowed != 0) allowed |= target;
  }
  if (allowed == 0) {
    std::fprintf(stderr, "no target %s here; known:", name);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets())
      std::fprintf(stderr, " %s", hwy::TargetName(target));
    std::fprintf(stderr, "\n");
    std::exit(1);
  }
  hwy::SetSupportedTargetsForTest(allowed);
}

}  // namespace feedwater::testing
