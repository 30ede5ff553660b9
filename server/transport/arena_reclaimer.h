// Gives the memory of ended sessions back: unmapping gigabytes takes long enough to disturb others,
// so a thread of its own does it, which is let in soon where every CPU decodes. It does not wait
// for workers that still write. What a client keeps beyond its session is ArenaWatch's to count.
//
// Thread-safe. The thread sleeps while there is nothing to reclaim. Without it - before Start,
// after Stop - what is discarded goes with its last owner.
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
  void Discard(std::shared_ptr<Arena> arena);
  void Stop();

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::vector<std::shared_ptr<Arena>> discarded_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = true;
  std::thread thread_;
};

}  // namespace feedwater::server
