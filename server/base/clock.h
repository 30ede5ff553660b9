// Time sources. All in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

namespace feedwater::server {

inline int64_t ClockNs(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}
inline int64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }
inline int64_t ThreadCpuNs() { return ClockNs(CLOCK_THREAD_CPUTIME_ID); }
inline int64_t ProcessCpuNs() { return ClockNs(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace feedwater::server
