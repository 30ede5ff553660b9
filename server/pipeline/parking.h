// Where workers without work sleep. Nobody polls: whoever makes work (a slot that became free, a
// rank that attached) wakes one worker, and a worker that finds more work than it takes wakes the
// next.
//
// A worker reads generation(), looks for work, and calls Sleep with what it read: work that came in
// between is not missed. Its lock is a leaf: a SlotPool may call Wake with its own lock held.
//
// Thread safety: all calls may come from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "server/base/mutex.h"

namespace feedwater::server {

class Parking {
 public:
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  int parked() const { return parked_.load(std::memory_order_relaxed); }

  // New work has come: wakes one sleeper, and lets everybody who is about to sleep look again.
  void Wake() {
    MutexLock lock(&mu_);
    generation_.fetch_add(1, std::memory_order_release);
    wake_.Signal();
  }
  void WakeAll() {
    MutexLock lock(&mu_);
    generation_.fetch_add(1, std::memory_order_release);
    wake_.SignalAll();
  }
  // Returns at once when something has happened since `seen`. May return for no reason.
  void Sleep(uint64_t seen) {
    MutexLock lock(&mu_);
    if (generation_.load(std::memory_order_relaxed) != seen) return;
    parked_.fetch_add(1, std::memory_order_relaxed);
    wake_.Wait(&mu_);
    parked_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  Mutex mu_;
  CondVar wake_;
  std::atomic<uint64_t> generation_{0};  // written under mu_
  std::atomic<int> parked_{0};           // written under mu_
};

}  // namespace feedwater::server
