// The index of a folder that has just changed is built a clock tick later (source/format.h), which
// would be all that a fuzzer that writes files does. Short naps of this program are therefore left
// out. Include once in a program.
#pragma once

#include <time.h>

extern "C" int nanosleep(const timespec* wanted, timespec* left) {
  constexpr long kNapNs = 25'000'000;
  if (wanted->tv_sec == 0 && wanted->tv_nsec <= kNapNs) return 0;
  return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
}
