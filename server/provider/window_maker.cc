#include "server/provider/window_maker.h"

#include <pthread.h>

#include <utility>

#include "server/base/thread.h"

namespace feedwater::server {

absl::Status WindowMaker::Start() {
  {
    MutexLock lock(&mu_);
    stop_ = false;
  }
  absl::StatusOr<std::thread> thread = StartThread("windows of providers", [this] { Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return absl::OkStatus();
  }
  Stop();
  return thread.status();
}

void WindowMaker::Make(uint32_t user, std::function<void()> make) {
  MutexLock lock(&mu_);
  if (stop_) return;
  waiting_[user].push_back(std::move(make));
  changed_.Signal();
}

void WindowMaker::Stop() {
  Waiting dropped;  // destroyed without the lock
  {
    MutexLock lock(&mu_);
    stop_ = true;
    dropped.swap(waiting_);
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void WindowMaker::Run() {
  pthread_setname_np(pthread_self(), "fw-windows");
  uint32_t served = 0;  // whose turn it was last
  for (;;) {
    std::function<void()> make;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !stop_) changed_.Wait(&mu_);
      if (stop_) return;
      auto next = waiting_.upper_bound(served);
      if (next == waiting_.end()) next = waiting_.begin();
      served = next->first;
      make = std::move(next->second.front());
      next->second.pop_front();
      if (next->second.empty()) waiting_.erase(next);
    }
    make();
  }
}

}  // namespace feedwater::server
