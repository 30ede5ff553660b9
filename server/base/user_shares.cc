#include "server/base/user_shares.h"

#include <iterator>

namespace feedwater::server {

void UserShares::Limit(int64_t bytes) {
  MutexLock lock(&mu_);
  bytes_ = bytes;
}

std::shared_ptr<MemoryBudget> UserShares::Of(uid_t user) {
  MutexLock lock(&mu_);
  for (auto it = shares_.begin(); it != shares_.end();)
    it = it->second.expired() ? shares_.erase(it) : std::next(it);
  if (const auto known = shares_.find(user); known != shares_.end()) {
    // Expired since: then a new one.
    if (std::shared_ptr<MemoryBudget> share = known->second.lock(); share != nullptr) return share;
  }
  if (bytes_ == 0) return whole_;
  std::shared_ptr<MemoryBudget> share = MemoryBudget::CreateShare(bytes_, whole_);
  shares_[user] = share;
  return share;
}

}  // namespace feedwater::server
