// How long one sample has been worked on, looked at between its ops and within long ones. Only CPU
// time of the thread counts: a busy machine makes no record bad. Every look is also a beat that
// tells others that the work goes on, however long it takes.
//
// Thread safety: belongs to one thread, but for beats().
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "server/base/clock.h"

namespace feedwater::server {

class WorkClock {
 public:
  // A sample begins: more than `limit_ms` of CPU time is too long (0: nothing is), and once `gone`
  // (may be null) is true nobody wants it any more. It is looked at until the next call.
  void Begin(int64_t limit_ms, const std::atomic<bool>* gone) {
    limit_ns_ = limit_ms * 1'000'000;
    gone_ = gone;
    look_at_ns_ = Now() + kFirstLookNs;
    cpu_start_ns_ = -1;
  }

  // InvalidArgument: too long. Cancelled: nobody wants it. Costs some nanoseconds.
  absl::Status Check() {
    Beat();
    const int64_t now = Now();
    return now < look_at_ns_ ? absl::OkStatus() : Look(now);
  }

  void Beat() {
    beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  // Ordinary samples end before the first look, and pay for no system call.
  static constexpr int64_t kFirstLookNs = 50'000'000, kNextLookNs = 10'000'000;

  static int64_t Now() { return ClockNs(CLOCK_MONOTONIC_COARSE); }
  absl::Status Look(int64_t now);

  std::atomic<uint64_t> beats_{0};  // written by the one thread
  int64_t limit_ns_ = 0;
  const std::atomic<bool>* gone_ = nullptr;
  int64_t look_at_ns_ = 0;
  int64_t cpu_start_ns_ = -1;  // at the first look; what was before does not count
};

}  // namespace feedwater::server
