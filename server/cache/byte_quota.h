// So many bytes that several caches share, and one user's part of them. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class ByteQuota {
 public:
  // With `whole` a part of that: what is taken of the part is taken of the whole, too.
  explicit ByteQuota(int64_t limit, std::shared_ptr<ByteQuota> whole = nullptr)
      : limit_(limit), whole_(std::move(whole)) {}

  // What Take calls when there is no room: gives something back, or says that there is nothing
  // (false). Null forgets it; a call under way has ended then.
  void SetMakeRoom(std::function<bool()> make_room) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    make_room_ = std::move(make_room);
  }

  bool Take(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_) {  // all of them or none
    if (TryTake(bytes)) {
      if (whole_ == nullptr || whole_->Take(bytes)) return true;
      used_.fetch_sub(bytes, std::memory_order_relaxed);
      return false;
    }
    if (bytes > limit()) return false;
    MutexLock lock(&mu_);
    while (make_room_ != nullptr && make_room_()) {
      if (TryTake(bytes)) return true;
    }
    return false;
  }
  void Force(int64_t bytes) {  // they are there already
    used_.fetch_add(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Force(bytes);
  }
  void Give(int64_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Give(bytes);
  }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  int64_t whole_limit() const { return whole_ != nullptr ? whole_->limit() : limit(); }
  int64_t free() const {
    const int64_t own = std::max<int64_t>(limit() - used(), 0);
    return whole_ != nullptr ? std::min(own, whole_->free()) : own;
  }
  // What is taken already stays.
  void SetLimit(int64_t limit) { limit_.store(limit, std::memory_order_relaxed); }

 private:
  bool TryTake(int64_t bytes) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit() - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }

  std::atomic<int64_t> limit_;
  const std::shared_ptr<ByteQuota> whole_;  // whose part this is; null: nobody's
  std::atomic<int64_t> used_{0};
  Mutex mu_;
  std::function<bool()> make_room_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
