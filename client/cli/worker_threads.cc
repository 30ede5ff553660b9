#include "client/cli/worker_threads.h"

#include <thread>
#include <utility>
#include <vector>

#include "server/base/mutex.h"
#include "server/base/no_throw.h"
#include "server/base/thread.h"

namespace feedwater::cli {
namespace {

struct Shared {
  server::Mutex mu;
  server::CondVar ended;
  size_t running ABSL_GUARDED_BY(mu) = 0;
  absl::Status failure ABSL_GUARDED_BY(mu);
};

}  // namespace

absl::Status RunInThreads(size_t count, const std::string& name,
                          const std::function<absl::Status()>& work,
                          const std::function<void()>& show, std::atomic<bool>* stop) {
  Shared shared;
  const auto run = [&] {
    const absl::Status status = server::NoThrow(work);
    server::MutexLock lock(&shared.mu);
    if (!status.ok()) *stop = true;
    if (shared.failure.ok()) shared.failure = status;
    --shared.running;
    shared.ended.SignalAll();
  };
  std::vector<std::thread> threads;
  while (threads.size() < count) {
    {
      server::MutexLock lock(&shared.mu);
      ++shared.running;
    }
    absl::StatusOr<std::thread> thread = server::StartThread(name, run);
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
      continue;
    }
    server::MutexLock lock(&shared.mu);
    --shared.running;
    if (threads.empty()) return thread.status();
    break;  // fewer do as well
  }
  for (bool is_done = false; !is_done;) {
    {
      server::MutexLock lock(&shared.mu);
      if (shared.running > 0) shared.ended.WaitWithTimeout(&shared.mu, absl::Milliseconds(100));
      is_done = shared.running == 0;
    }
    show();
  }
  for (std::thread& thread : threads) thread.join();
  server::MutexLock lock(&shared.mu);
  return shared.failure;
}

}  // namespace feedwater::cli
