// A lock file that one process holds at a time: a folder's, a cache's.
//
// The lock is flock's, so the kernel gives it back when its holder ends. There is one case in which
// the kernel does not: a process that was killed while one of its threads waits in a call that
// cannot be interrupted (storage that hangs). Such a process runs no instruction of its own any
// more, and yet keeps what it has open. The file therefore says who holds it, and a process that is
// over in this sense does not hold it: the next one puts a file of its own in its place.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/base/fd.h"

namespace feedwater::server {

class ProcessLock {
 public:
  // Makes the file where it is not there. AlreadyExists, "PATH is held by pid N", when a process
  // that is not over holds it; other codes where it cannot be had at all.
  static absl::StatusOr<ProcessLock> Take(const std::string& path, mode_t mode);

  ProcessLock() = default;  // holds nothing
  explicit operator bool() const { return static_cast<bool>(fd_); }

 private:
  explicit ProcessLock(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

// Whether a process of this PID namespace that began at `start` (field 22 of /proc/PID/stat) is
// over: dead and not waited for, or killed and stuck in the kernel. False when that is not known.
bool ProcessIsOver(int pid, long long start);
// Of this process.
long long ProcessStart();

}  // namespace feedwater::server
