// Whose time a worker spends: what it has used for the job that it works for, until the scheduler
// is told. One thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "server/base/clock.h"
#include "server/pipeline/scheduler.h"
#include "server/pipeline/usage.h"

namespace feedwater::server {

class CpuAccount {
 public:
  explicit CpuAccount(Scheduler* scheduler) : scheduler_(scheduler) {}

  // The CPU time from here on is this job's; null: nobody's.
  void WorkFor(const std::shared_ptr<Job>& job) {
    if (job == job_) return;
    const Usage usage = Take();
    if (job_ != nullptr) scheduler_->Charge(*job_, usage);
    job_ = job;
  }
  Usage& usage() { return usage_; }
  // CPU time in all, and what decoder processes took or kept the worker waiting.
  int64_t used_ns() const { return used_ns_; }
  void AddUsed(int64_t ns) { used_ns_ += ns; }
  void Count() {
    const int64_t now = ThreadCpuNs();
    usage_.cpu_ns += now - counted_ns_;
    used_ns_ += now - counted_ns_;
    counted_ns_ = now;
  }
  // All that is not told yet.
  Usage Take() {
    Count();
    return std::exchange(usage_, Usage());
  }
  // The thread's CPU time up to which is counted here, for who counts a part of it elsewhere.
  int64_t* counted_ns() { return &counted_ns_; }

 private:
  Scheduler* const scheduler_;
  std::shared_ptr<Job> job_;
  Usage usage_;
  int64_t counted_ns_ = 0, used_ns_ = 0;
};

}  // namespace feedwater::server
