// Gives the memory of ended sessions back. Unmapping gigabytes takes long enough to disturb others,
// so a thread of its own does it, which runs soon after it was woken, also where every CPU decodes.
// It does not wait for workers that still write. ArenaWatch counts what a client holds beyond its
// session.
//
// Thread-safe. The thread sleeps while there is nothing to reclaim. Without it - before Start,
// after Stop - nothing is called, and what is held goes with its last owner.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/base/status.h"

namespace feedwater::server {

class Reclaimer {
 public:
  ~Reclaimer() { Stop(); }

  absl::Status Start();  // once
  // `give_back` is called, and what it holds is let go, on the thread.
  void Discard(std::function<void()> give_back);
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::vector<std::function<void()>> discarded_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = true;
  std::thread thread_;
};

}  // namespace feedwater::server
