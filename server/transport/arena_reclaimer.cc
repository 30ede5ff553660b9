#include "server/transport/arena_reclaimer.h"

#include <pthread.h>

#include <utility>

#include "server/base/thread.h"

namespace feedwater::server {

absl::Status ArenaReclaimer::Start() {
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

void ArenaReclaimer::Discard(std::shared_ptr<Arena> arena) {
  if (arena == nullptr) return;
  MutexLock lock(&mu_);
  if (stop_) return;
  discarded_.push_back(std::move(arena));
  changed_.Signal();
}

void ArenaReclaimer::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void ArenaReclaimer::Run() {
  pthread_setname_np(pthread_self(), "fw-reclaim");
  RunSoonAfterWaking();
  while (true) {
    std::vector<std::shared_ptr<Arena>> fresh;
    {
      MutexLock lock(&mu_);
      while (discarded_.empty() && !stop_) changed_.Wait(&mu_);
      if (discarded_.empty()) return;
      fresh.swap(discarded_);
    }
    for (const std::shared_ptr<Arena>& arena : fresh) arena->LetGo();
  }
}

}  // namespace feedwater::server
