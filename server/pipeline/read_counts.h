// What a daemon has asked storage for, counted where it is asked. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "server/base/counters.h"

namespace feedwater::server {

struct ReadCounts {
  std::atomic<uint64_t> reads{0}, bytes{0};
  std::atomic<uint64_t> seeks{0};   // reads that do not go on where the worker's last one ended
  std::atomic<uint64_t> joined{0};  // extents that came with another one's read
  std::atomic<uint64_t> found_ahead{0};  // reads of what was read ahead
  std::atomic<uint64_t> ahead{0}, ahead_bytes{0}, ahead_seeks{0};

  Counters counters() const;
};

inline void Add(std::atomic<uint64_t>* count, int64_t by = 1) {
  count->fetch_add(static_cast<uint64_t>(by), std::memory_order_relaxed);
}

}  // namespace feedwater::server
