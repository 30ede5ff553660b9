// Memory as a sum that can be read: every large allocation (arenas, worker buffers, indexes,
// caches) is a named term that is reserved before it is made. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class MemoryBudget;

// Holds a term of the sum while it lives. Movable. A default one holds nothing.
class MemoryReservation {
 public:
  MemoryReservation() = default;
  MemoryReservation(MemoryReservation&& other) noexcept { *this = std::move(other); }
  MemoryReservation& operator=(MemoryReservation&& other) noexcept;
  ~MemoryReservation() { Release(); }
  void Release();
  void ShrinkTo(int64_t bytes);  // no more than it has
  int64_t bytes() const { return bytes_; }

 private:
  friend class MemoryBudget;
  std::shared_ptr<MemoryBudget> budget_, whole_;  // whole_: of a share, where that is held as well
  std::string term_;
  int64_t bytes_ = 0;
};

// What a budget has refused.
struct RefusedMemory {
  int64_t bytes = 0;
  bool by_share = false;  // a user's share was short, whatever its sum had left
};
// Nothing: the status is of something else.
std::optional<RefusedMemory> RefusedMemoryOf(const absl::Status& status);

class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  // `key` is where feedwater.yaml sets the limit; a refusal names it.
  static std::shared_ptr<MemoryBudget> Create(int64_t limit_bytes, std::string key = "memory") {
    return std::shared_ptr<MemoryBudget>(new MemoryBudget(limit_bytes, std::move(key), nullptr));
  }
  // One user's share of a sum: what is reserved from it is a term of that sum, too.
  static std::shared_ptr<MemoryBudget> CreateShare(int64_t limit_bytes,
                                                   std::shared_ptr<MemoryBudget> of) {
    std::string key = of->key_;
    return std::shared_ptr<MemoryBudget>(
        new MemoryBudget(limit_bytes, std::move(key), std::move(of)));
  }
  // Adds `bytes` to the term, or ResourceExhausted with the whole sum in the message:
  // "arenas 1.2 GiB + indexes 80 MiB + this request (arenas) 900 MiB = 2.2 GiB, over the limit
  // of 2.0 GiB; cure: ..."
  absl::StatusOr<MemoryReservation> Reserve(std::string term, int64_t bytes);
  // From a share alone, for what its sum holds under another reservation.
  absl::StatusOr<MemoryReservation> ReserveOfShare(std::string term, int64_t bytes);

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t planned_bytes() const;
  int64_t free_bytes() const;  // of a share: what its sum has left as well
  int64_t own_free_bytes() const { return limit_bytes_ - planned_bytes(); }  // whatever its sum has
  std::string Sum() const;  // "arenas 1.2 GiB + indexes 80 MiB = 1.3 GiB of 8.0 GiB"

 private:
  friend class MemoryReservation;
  MemoryBudget(int64_t limit_bytes, std::string key, std::shared_ptr<MemoryBudget> whole)
      : limit_bytes_(limit_bytes), key_(std::move(key)), whole_(std::move(whole)) {}
  absl::Status Take(const std::string& term, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void GiveBack(const std::string& term, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t PlannedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string SumLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t limit_bytes_;
  const std::string key_;
  const std::shared_ptr<MemoryBudget> whole_;  // whose share this is; null: nobody's
  mutable Mutex mu_;
  std::map<std::string, int64_t> terms_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
