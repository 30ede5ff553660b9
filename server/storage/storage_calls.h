// Calls into storage that may hang: a file system behind a network or a program (NFS, FUSE, Lustre)
// can leave a thread in the kernel for ever, and not even SIGKILL brings it back. So no thread that
// others depend on makes such a call. They are handed over here, to threads that nobody waits for.
//
// Each user has a share of the threads, and calls beyond it wait in that user's own queue: storage
// that hangs for one user holds up that user alone. Threads are made when they are needed and end
// when they have had nothing to do for a while.
//
// Thread safety: all calls may come from any thread. Calls own all that they use: those that hang
// are left behind at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace feedwater::server {

class StorageCall {
 public:
  virtual ~StorageCall() = default;
  // On a thread of the pool. Tells whoever waits that it is done.
  virtual void Run() = 0;
};

class StorageCalls {
 public:
  struct Options {
    size_t threads_per_user = 32;
    size_t threads = 256;  // of all users
    absl::Duration idle = absl::Seconds(10);
  };
  StorageCalls() : StorageCalls(Options()) {}
  explicit StorageCalls(const Options& options);
  ~StorageCalls() { Stop(); }

  // Never waits. Where not even one thread can be had, the call runs when one of the running calls
  // has ended, or else here and now.
  void Start(uint32_t user, std::shared_ptr<StorageCall> call);
  // Waits for calls that end soon. What is started afterwards is dropped.
  void Stop();
  // True: the call had not begun, and never will.
  bool Cancel(uint32_t user, const StorageCall* call);

  struct Counts {
    size_t threads = 0, running = 0, queued = 0;
  };
  Counts counts() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace feedwater::server
