#include "server/pipeline/worker_shares.h"

#include <algorithm>

namespace feedwater::server {

namespace {

void EndOne(std::map<int, int>* tickets, int worker) {
  const auto on_worker = tickets->find(worker);
  if (on_worker != tickets->end() && --on_worker->second == 0) tickets->erase(on_worker);
}

}  // namespace

bool WorkerShares::MayTake(uint32_t uid, int worker, int users, bool calls_out) const {
  if (workers_ == 0) return true;
  if (calls_out && admits_others_ && calls_.count(worker) == 0) {
    const int most = std::max(1, workers_ - std::max(1, workers_ / 4));
    if (calls_.size() >= static_cast<size_t>(most)) return false;
  }
  if (users <= 1) return true;
  const auto of_user = tickets_.find(uid);
  if (of_user == tickets_.end() || of_user->second.count(worker) > 0) return true;
  const auto most = static_cast<size_t>(std::max(1, workers_ / users));
  return of_user->second.size() < most;
}

void WorkerShares::Taken(uint32_t uid, int worker, bool calls_out) {
  ++tickets_[uid][worker];
  if (calls_out) ++calls_[worker];
}

void WorkerShares::Done(uint32_t uid, int worker, bool calls_out) {
  if (calls_out) EndOne(&calls_, worker);
  const auto of_user = tickets_.find(uid);
  if (of_user == tickets_.end()) return;
  EndOne(&of_user->second, worker);
  if (of_user->second.empty()) tickets_.erase(of_user);
}

}  // namespace feedwater::server
