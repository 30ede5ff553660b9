// How fast a job's samples are made: what one costs, and whether the job is slow. A new job is slow
// until its first sample is done; any job is for a while after a slow sample (worker_shares.h).
//
// Not thread-safe: guarded by the scheduler's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "server/pipeline/usage.h"
#include "server/pipeline/worker_shares.h"

namespace feedwater::server {

class JobPace {
 public:
  void Account(const Usage& usage) {
    // Whether or not a sample came of it: bad ones that were substituted, and batch ops, keep
    // workers busy, too.
    if (usage.used_ns() > WorkerShares::kSlowNs || usage.is_large) {
      slow_samples_ = WorkerShares::kSlowSamples;
    } else {
      slow_samples_ = std::max<int64_t>(0, slow_samples_ - usage.samples);
    }
    if (usage.samples == 0) return;
    is_measured_ = true;
    const double cost = static_cast<double>(usage.used_ns()) / static_cast<double>(usage.samples);
    sample_cost_ns_ = sample_cost_ns_ == 0 ? cost : sample_cost_ns_ + (cost - sample_cost_ns_) / 8;
  }

  double sample_cost_ns() const { return sample_cost_ns_; }  // moving mean; 0: not known yet
  bool is_slow() const { return !is_measured_ || slow_samples_ > 0; }

  // A new job has one worker until its first sample is done, and none takes more of it that others'
  // work has taken from it (turns.h).
  bool MayTake(int worker) const {
    if (suspended_on_.count(worker) > 0) return false;
    return is_measured_ || slow_on_.empty() || slow_on_.count(worker) > 0;
  }
  void BeginSlow(int worker) { ++slow_on_[worker]; }
  void EndSlow(int worker) {
    if (--slow_on_[worker] == 0) slow_on_.erase(worker);
  }
  // So many samples more, or less, are suspended there.
  void Suspend(int worker, int change) {
    if ((suspended_on_[worker] += change) == 0) suspended_on_.erase(worker);
  }

 private:
  double sample_cost_ns_ = 0;
  bool is_measured_ = false;
  int64_t slow_samples_ = 0;         // for so many more it counts as slow
  std::map<int, int> slow_on_;       // tickets under way, taken while it was new or slow, by worker
  std::map<int, int> suspended_on_;  // samples, by worker
};

}  // namespace feedwater::server
