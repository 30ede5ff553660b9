// So many bytes that several caches share. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class ByteQuota {
 public:
  explicit ByteQuota(int64_t limit) : limit_(limit) {}

  // What Take calls when there is no room: gives something back, or says that there is nothing
  // (false). Null forgets it; a call under way has ended then.
  void SetMakeRoom(std::function<bool()> make_room) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    make_room_ = std::move(make_room);
  }

  bool Take(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_) {  // all of them or none
    if (TryTake(bytes)) return true;
    if (bytes > limit_) return false;
    MutexLock lock(&mu_);
    while (make_room_ != nullptr && make_room_()) {
      if (TryTake(bytes)) return true;
    }
    return false;
  }
  void Force(int64_t bytes) {
    used_.fetch_add(bytes, std::memory_order_relaxed);
  }  // they are there already
  void Give(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }

 private:
  bool TryTake(int64_t bytes) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
  Mutex mu_;
  std::function<bool()> make_room_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
