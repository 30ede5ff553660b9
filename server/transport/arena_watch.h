// Counts the shared memory of sessions for as long as it exists, whoever holds it. A client may
// hold an arena beyond its session by a mapping, a descriptor, an O_PATH descriptor, a copy in
// another process or in the queue of a socket. Only the kernel knows when the last of them is gone.
// It says so by inotify: the event "the file is gone" of a memfd comes when nothing refers to it
// any more. So the daemon holds neither a descriptor nor a mapping for that, and asks nobody.
//
// What stays outside the account: pages that a client pinned by themselves (spliced into a pipe,
// registered with io_uring). The kernel bounds those for each user (pipe-user-pages-soft,
// RLIMIT_MEMLOCK).
//
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "server/base/fd.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/status.h"

namespace feedwater::server {

// What an arena takes from the sums, and whose it is.
struct ArenaAccount {
  uid_t owner = 0;
  MemoryReservation of_daemon, of_user;
};

class ArenaWatch {
 public:
  // One user has at most `max_per_owner` arenas that exist, of open and of ended sessions together.
  // ResourceExhausted where the kernel gives no inotify instance.
  static absl::StatusOr<std::unique_ptr<ArenaWatch>> Create(int max_per_owner);

  // The memfd's account is given back when its memory is. REQUIRES: nobody else has it yet.
  // ResourceExhausted over the owner's number, or where the kernel has no watch left; the account
  // is then given back at once.
  absl::Status Add(int memfd, ArenaAccount account) ABSL_LOCKS_EXCLUDED(mu_);

  int fd() const { return inotify_.get(); }  // readable: there is something to settle
  void Settle() ABSL_LOCKS_EXCLUDED(mu_);    // gives back what is gone. Never waits

  int held(uid_t owner) const ABSL_LOCKS_EXCLUDED(mu_);  // arenas that exist
  int held() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  ArenaWatch(Fd inotify, int max_per_owner)
      : inotify_(std::move(inotify)), max_per_owner_(max_per_owner) {}
  // The kernel's queue was full and events are lost: compares with what it still watches.
  void SettleByList() ABSL_LOCKS_EXCLUDED(mu_);
  void Gone(int watch) ABSL_LOCKS_EXCLUDED(mu_);

  const Fd inotify_;
  const int max_per_owner_;

  mutable Mutex mu_;
  std::map<int, ArenaAccount> accounts_ ABSL_GUARDED_BY(mu_);  // by the watch's number
  std::map<uid_t, int> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
