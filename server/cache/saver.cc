#include "server/cache/saver.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "server/base/status.h"
#include "server/base/thread.h"

namespace feedwater::server {

Saver::~Saver() {
  std::thread thread;
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

absl::StatusOr<std::unique_ptr<Saver::Task>> Saver::Add(std::function<bool()> step,
                                                        absl::Duration every) {
  auto task = std::make_unique<Task>();
  MutexLock lock(&mu_);
  if (!thread_.joinable()) {
    FW_ASSIGN_OR_RETURN(thread_, StartThread("the files of caches", [this] { Run(); }));
  }
  task->saver_ = shared_from_this();
  task->step_ = std::move(step);
  task->every_ = every;
  task->due_ = absl::Now() + every;
  tasks_.insert(task.get());
  changed_.SignalAll();
  return task;
}

Saver::Task::~Task() {
  if (saver_ == nullptr) return;
  MutexLock lock(&saver_->mu_);
  saver_->tasks_.erase(this);
  auto& ready = saver_->ready_;
  ready.erase(std::remove(ready.begin(), ready.end(), this), ready.end());
  while (saver_->running_ == this) saver_->changed_.Wait(&saver_->mu_);
}

void Saver::Task::Wake() {
  MutexLock lock(&saver_->mu_);
  saver_->MakeReady(this);
  saver_->changed_.SignalAll();
}

void Saver::MakeReady(Task* task) {
  if (std::exchange(task->is_ready_, true)) return;
  ready_.push_back(task);
}

// Returns when the next task is due.
absl::Time Saver::ReadyWhatIsDue(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  for (Task* task : tasks_) {
    if (task->due_ <= now) {
      MakeReady(task);
    } else {
      next = std::min(next, task->due_);
    }
  }
  return next;
}

void Saver::Run() {
  pthread_setname_np(pthread_self(), "fw-cache");
  MutexLock lock(&mu_);
  while (!stop_) {
    const absl::Time next = ReadyWhatIsDue(absl::Now());
    if (ready_.empty()) {
      changed_.WaitWithTimeout(&mu_, next - absl::Now());
      continue;
    }
    Task* const task = ready_.front();
    ready_.pop_front();
    task->is_ready_ = false;
    running_ = task;
    mu_.Unlock();
    const bool has_more = task->step_();
    mu_.Lock();
    running_ = nullptr;
    changed_.SignalAll();
    if (tasks_.count(task) == 0) continue;  // whoever ends it waits for this lock
    task->due_ = absl::Now() + task->every_;
    if (has_more) MakeReady(task);
  }
}

}  // namespace feedwater::server
