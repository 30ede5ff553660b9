#include "server/pipeline/worker_shares.h"

#include <algorithm>

namespace feedwater::server {

bool WorkerShares::MayTake(uint32_t uid, int worker, double weight, double weights) const {
  if (workers_ == 0 || weight >= weights) return true;
  const auto of_user = tickets_.find(uid);
  if (of_user == tickets_.end() || of_user->second.count(worker) > 0) return true;
  const auto most = std::max<size_t>(1, static_cast<size_t>(workers_ * weight / weights));
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
