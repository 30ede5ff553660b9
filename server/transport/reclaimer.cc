#include "server/transport/reclaimer.h"

#include <pthread.h>

#include <utility>

#include "server/base/thread.h"

namespace feedwater::server {

absl::Status Reclaimer::Start() {
  {
    MutexLock lock(&mu_);
    stop_ = false;
  }
  absl::StatusOr<std::thread> thread =
      StartThread("the memory of ended sessions", [this] { Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return absl::OkStatus();
  }
  Stop();
  return thread.status();
}

void Reclaimer::Discard(std::function<void()> give_back) {
  MutexLock lock(&mu_);
  if (stop_) return;
  discarded_.push_back(std::move(give_back));
  changed_.Signal();
}

void Reclaimer::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void Reclaimer::Run() {
  pthread_setname_np(pthread_self(), "fw-reclaim");
  RunSoonAfterWaking();
  while (true) {
    std::vector<std::function<void()>> fresh;
    {
      MutexLock lock(&mu_);
      while (discarded_.empty() && !stop_) changed_.Wait(&mu_);
      if (discarded_.empty()) return;
      fresh.swap(discarded_);
    }
    for (const std::function<void()>& give_back : fresh) give_back();
  }
}

}  // namespace feedwater::server
