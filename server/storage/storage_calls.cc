#include "server/storage/storage_calls.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "server/base/mutex.h"
#include "server/base/thread.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr auto kPatience = absl::Seconds(1);  // of Stop

}  // namespace

// Shared with the threads, which may outlive the pool.
struct StorageCalls::State {
  struct User {
    std::deque<std::shared_ptr<StorageCall>> queue;
    size_t running = 0;
  };

  explicit State(const Options& with) : options(with) {}

  // The next call of the user who has the fewest running ones.
  std::shared_ptr<StorageCall> Take(uint32_t* user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  size_t Runnable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);  // queued calls that may begin
  void Done(uint32_t user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Work();

  const Options options;
  mutable Mutex mu;
  CondVar work, ended;
  std::map<uint32_t, User> users ABSL_GUARDED_BY(mu);
  size_t threads ABSL_GUARDED_BY(mu) = 0, idle ABSL_GUARDED_BY(mu) = 0;
  size_t starting ABSL_GUARDED_BY(mu) = 0;  // threads that have not looked for a call yet
  bool stopping ABSL_GUARDED_BY(mu) = false;
};

std::shared_ptr<StorageCall> StorageCalls::State::Take(uint32_t* user) {
  User* least = nullptr;
  for (auto& [uid, one] : users) {
    if (one.queue.empty() || one.running >= options.threads_per_user) continue;
    if (least != nullptr && least->running <= one.running) continue;
    least = &one;
    *user = uid;
  }
  if (least == nullptr) return nullptr;
  std::shared_ptr<StorageCall> call = std::move(least->queue.front());
  least->queue.pop_front();
  ++least->running;
  return call;
}

size_t StorageCalls::State::Runnable() const {
  size_t runnable = 0;
  for (const auto& [uid, user] : users)
    runnable += std::min(user.queue.size(), options.threads_per_user - user.running);
  return runnable;
}

void StorageCalls::State::Done(uint32_t user) {
  const auto found = users.find(user);
  if (--found->second.running == 0 && found->second.queue.empty()) users.erase(found);
}

void StorageCalls::State::Work() {
  pthread_setname_np(pthread_self(), "fw-storage");
  mu.Lock();
  --starting;
  for (;;) {
    uint32_t user = 0;
    if (std::shared_ptr<StorageCall> call = Take(&user)) {
      mu.Unlock();
      call->Run();
      call.reset();
      mu.Lock();
      Done(user);
      continue;
    }
    if (stopping) break;
    ++idle;
    const bool timed_out = work.WaitWithTimeout(&mu, options.idle);
    --idle;
    if (timed_out && Runnable() == 0) break;
  }
  --threads;
  ended.SignalAll();
  mu.Unlock();
}

StorageCalls::StorageCalls(const Options& options) : state_(std::make_shared<State>(options)) {}

void StorageCalls::Stop() {
  State& state = *state_;
  MutexLock lock(&state.mu);
  if (state.stopping) return;
  state.stopping = true;
  state.work.SignalAll();
  const absl::Time until = absl::Now() + kPatience;
  while (state.threads > 0 && absl::Now() < until)
    state.ended.WaitWithTimeout(&state.mu, absl::Milliseconds(50));
  if (state.threads > 0)
    spdlog::warn("{} calls into storage hang and are left behind", state.threads);
}

void StorageCalls::Start(uint32_t user, std::shared_ptr<StorageCall> call) {
  State& state = *state_;
  {
    MutexLock lock(&state.mu);
    if (state.stopping) return;
    state.users[user].queue.push_back(std::move(call));
    const size_t runnable = state.Runnable();
    // Those that were woken or started already, and have not come yet, too.
    if (runnable <= state.idle + state.starting) {
      if (runnable > 0) state.work.Signal();
      return;
    }
    if (state.threads >= state.options.threads) return;
    ++state.threads;
    ++state.starting;
  }
  absl::StatusOr<std::thread> thread =
      StartThread("calls into storage", [shared = state_] { shared->Work(); });
  if (thread.ok()) return thread->detach();
  MutexLock lock(&state.mu);
  --state.starting;
  --state.threads;
  // Without a thread that takes them, all of them are done here: also one of somebody who could not
  // start a thread either, and believed that this one would come.
  while (state.threads == 0) {
    std::shared_ptr<StorageCall> left = state.Take(&user);
    if (left == nullptr) return;
    state.mu.Unlock();
    left->Run();
    left.reset();
    state.mu.Lock();
    state.Done(user);
  }
}

bool StorageCalls::Cancel(uint32_t user, const StorageCall* call) {
  std::shared_ptr<StorageCall> cancelled;  // dropped without the lock
  MutexLock lock(&state_->mu);
  const auto found = state_->users.find(user);
  if (found == state_->users.end()) return false;
  auto& queue = found->second.queue;
  const auto at = std::find_if(queue.begin(), queue.end(),
                               [&](const auto& queued) { return queued.get() == call; });
  if (at == queue.end()) return false;
  cancelled = std::move(*at);
  queue.erase(at);
  if (found->second.running == 0 && queue.empty()) state_->users.erase(found);
  return true;
}

StorageCalls::Counts StorageCalls::counts() const {
  MutexLock lock(&state_->mu);
  Counts counts;
  counts.threads = state_->threads;
  for (const auto& [uid, user] : state_->users) {
    counts.running += user.running;
    counts.queued += user.queue.size();
  }
  return counts;
}

}  // namespace feedwater::server
