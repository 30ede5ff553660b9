// The thread on which larger windows are made (room.cc): one of 256 MiB takes 100 ms, for which the
// thread that listens to all users' processes has no time. Users take turns.
//
// Thread-safe. Before Start and after Stop nothing is made.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/base/status.h"

namespace feedwater::server {

class WindowMaker {
 public:
  ~WindowMaker() { Stop(); }

  absl::Status Start() ABSL_LOCKS_EXCLUDED(mu_);  // once
  // `make` is called, and what it holds is let go, on the thread. Of one process one at a time is
  // asked for, so their number needs no other bound.
  void Make(uint32_t user, std::function<void()> make) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Waiting = std::map<uint32_t, std::deque<std::function<void()>>>;  // by user; none is empty

  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar changed_;
  Waiting waiting_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = true;
  std::thread thread_;
};

}  // namespace feedwater::server
