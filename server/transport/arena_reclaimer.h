// Gives the memory of ended sessions back: unmapping gigabytes takes long enough to disturb others,
// so a thread of its own does it. It also keeps an arena's place in the memory budget until no
// client holds the memory any more; a client may keep lent batches beyond its session, and a
// hostile one could otherwise collect arenas that nobody counts.
//
// Thread-safe. The thread sleeps while there is nothing to reclaim. Without it - before Start,
// after Stop - what is discarded goes at once, in the caller.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "server/base/mutex.h"
#include "server/transport/arena.h"

namespace feedwater::server {

class ArenaReclaimer {
 public:
  ~ArenaReclaimer() { Stop(); }

  absl::Status Start();  // once
  void Discard(std::unique_ptr<Arena> arena);
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::vector<std::unique_ptr<Arena>> discarded_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = true;
  std::thread thread_;
};

}  // namespace feedwater::server
