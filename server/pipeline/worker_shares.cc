#include "server/pipeline/worker_shares.h"

#include <algorithm>

namespace feedwater::server {

bool WorkerShares::MayTake(uint32_t uid, int worker, int users) const {
  if (workers_ == 0 || users <= 1) return true;
  const auto of_user = tickets_.find(uid);
  if (of_user == tickets_.end() || of_user->second.count(worker) > 0) return true;
  const auto most = static_cast<size_t>(std::max(1, workers_ / users));
  return of_user->second.size() < most;
}

void WorkerShares::Taken(uint32_t uid, int worker) { ++tickets_[uid][worker]; }

void WorkerShares::Done(uint32_t uid, int worker) {
  const auto of_user = tickets_.find(uid);
  if (of_user == tickets_.end()) return;
  const auto on_worker = of_user->second.find(worker);
  if (on_worker == of_user->second.end()) return;
  if (--on_worker->second == 0) of_user->second.erase(on_worker);
  if (of_user->second.empty()) tickets_.erase(of_user);
}

}  // namespace feedwater::server
