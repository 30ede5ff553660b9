// What one user may take of a budget, however much of it is free: so the next user finds room.
// Arenas, samples, staging, large read buffers, texts and indexes are reserved from the share of
// the user who causes them; planned read buffers serve all users and are no part of one; caches
// have quotas of their own (server/cache/cache.h). Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class UserShares {
 public:
  explicit UserShares(std::shared_ptr<MemoryBudget> whole) : whole_(std::move(whole)) {}

  // For each user; 0: no limit. What is reserved already stays as it is: a user who has a share
  // keeps that until nothing of it is reserved, and what was taken without one is not counted.
  void Limit(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // The user's share; without a limit the whole.
  std::shared_ptr<MemoryBudget> Of(uid_t user) ABSL_LOCKS_EXCLUDED(mu_);
  const std::shared_ptr<MemoryBudget>& whole() const { return whole_; }

 private:
  const std::shared_ptr<MemoryBudget> whole_;
  Mutex mu_;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uid_t, std::weak_ptr<MemoryBudget>> shares_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
