#include "server/transport/arena_reclaimer.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "server/base/thread.h"

namespace feedwater::server {

namespace {

// How often to look whether the clients of the unmapped arenas have let go: often at first, for a
// process that is just dying.
constexpr absl::Duration kFirstLook = absl::Milliseconds(1);
constexpr absl::Duration kLastLook = absl::Milliseconds(250);

}  // namespace

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

void ArenaReclaimer::Discard(std::unique_ptr<Arena> arena) {
  if (arena == nullptr) return;
  MutexLock lock(&mu_);
  if (stop_) return;  // `arena` goes when the lock does
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
  std::vector<std::unique_ptr<Arena>> held;  // unmapped here, still in use by a client
  absl::Duration wait = kFirstLook;
  while (true) {
    std::vector<std::unique_ptr<Arena>> fresh;
    {
      MutexLock lock(&mu_);
      if (discarded_.empty() && !stop_) {
        if (held.empty()) {
          changed_.Wait(&mu_);
        } else {
          changed_.WaitWithTimeout(&mu_, wait);
        }
      }
      fresh.swap(discarded_);
      if (stop_ && fresh.empty()) return;
    }
    wait = fresh.empty() ? std::min(wait * 2, kLastLook) : kFirstLook;
    for (std::unique_ptr<Arena>& arena : fresh) {
      arena->Unmap();
      held.push_back(std::move(arena));
    }
    held.erase(std::remove_if(held.begin(), held.end(),
                              [](const auto& arena) { return !arena->InUseElsewhere(); }),
               held.end());
  }
}

}  // namespace feedwater::server
