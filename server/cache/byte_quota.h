// So many bytes that several caches share. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace feedwater::server {

class ByteQuota {
 public:
  explicit ByteQuota(int64_t limit) : limit_(limit) {}
  bool Take(int64_t bytes) {  // all of them or none
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void Force(int64_t bytes) {
    used_.fetch_add(bytes, std::memory_order_relaxed);
  }  // they are there already
  void Give(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace feedwater::server
