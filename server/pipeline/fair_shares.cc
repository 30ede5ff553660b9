#include "server/pipeline/fair_shares.h"

#include <algorithm>

namespace feedwater::server {
namespace {

// How far a job that had nothing to do for a while may stand before the others when it comes back.
constexpr double kIdleCreditNs = 20'000'000;

}  // namespace

double FairShares::JobBegins(uint32_t uid) {
  for (auto it = users_.begin(); it != users_.end();) {
    const bool is_known = it->second.jobs > 0 || it->second.used_ns > floor_ns_;
    it = is_known ? std::next(it) : users_.erase(it);
  }
  User& user = users_[uid];
  if (user.jobs++ == 0) {
    ++users_with_jobs_;
    user.used_ns = std::max(user.used_ns, floor_ns_);
  }
  return user.floor_ns;
}

void FairShares::JobEnds(uint32_t uid) {
  if (--users_[uid].jobs == 0) --users_with_jobs_;
}

FairShares::Used FairShares::UsedBy(uint32_t uid, double* job_ns) {
  User& user = users_[uid];
  user.used_ns = std::max(user.used_ns, floor_ns_ - kIdleCreditNs);
  *job_ns = std::max(*job_ns, user.floor_ns - kIdleCreditNs);
  return {user.used_ns, *job_ns};
}

void FairShares::Picked(uint32_t uid, Used used) {
  floor_ns_ = std::max(floor_ns_, used.first);
  User& user = users_[uid];
  user.floor_ns = std::max(user.floor_ns, used.second);
}

void FairShares::Use(uint32_t uid, double ns, double* job_ns) {
  *job_ns += ns;
  users_[uid].used_ns += ns;
}

void FairShares::Charge(uint32_t uid, double ns) {
  const auto user = users_.find(uid);
  if (user != users_.end()) user->second.used_ns += ns;
}

}  // namespace feedwater::server
