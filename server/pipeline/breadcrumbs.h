// What each worker is working on, in a file that outlives the process: so that a sample that
// crashes the daemon again and again can be found and put aside.
//
// state_dir/breadcrumbs is mapped into memory, with one crumb a worker. A worker fills its crumb in
// before it touches a sample and clears it afterwards: a few stores, no system call. When a thread
// dies of a fault (SIGSEGV, SIGBUS, SIGILL, SIGFPE, or SIGABRT of its own abort()), the signal
// handler notes the signal in that thread's crumb, and the process goes on dying as it would have.
// So only the sample that the fault came from is blamed: not those of the other workers, and none
// at all for a `kill -9`, an operator's signal or a power failure. The next daemon reads the file
// at its start.
//
//   64 bytes of header: magic, number of crumbs; then 512 bytes a crumb
//
// Thread safety: a crumb belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/process_lock.h"
#include "server/base/status.h"

namespace feedwater::server {

// One worker's crumb as it lies in the file.
struct Breadcrumb {
  uint32_t working;  // 1 between Enter and Leave
  uint32_t signal;   // not 0: the thread died of it
  int64_t record;
  int64_t offset, length;
  char dataset[32];  // digest, zero-padded
  char path[448];    // zero-terminated, cut if longer

  void Enter(absl::string_view dataset_digest, int64_t at_record, int64_t at_offset,
             int64_t of_length, absl::string_view at_path);
  void Leave();
};
static_assert(sizeof(Breadcrumb) == 512);

class Breadcrumbs {
 public:
  // A sample during which an earlier daemon died.
  struct Crash {
    std::string dataset, path;
    int64_t record = 0, offset = 0, length = 0;
    int signal = 0;
  };

  // Whether a daemon that runs has its crumbs in the folder.
  static bool AreInUse(const std::string& state_dir);
  // Reads and clears what an earlier daemon has left in the folder, and makes `workers` crumbs.
  // FailedPrecondition when another process has the file; a file that is none is made anew.
  static absl::StatusOr<std::unique_ptr<Breadcrumbs>> Open(const std::string& state_dir,
                                                           size_t workers,
                                                           std::vector<Crash>* crashes);
  ~Breadcrumbs();

  Breadcrumb* crumb(size_t worker) const;  // REQUIRES: worker < workers

 private:
  Breadcrumbs(ProcessLock lock, std::byte* data, size_t bytes)
      : lock_(std::move(lock)), data_(data), bytes_(bytes) {}

  const ProcessLock lock_;
  std::byte* const data_;
  const size_t bytes_;
};

// Makes `crumb` this thread's, until the object goes: a fault of this thread is noted there. Gives
// the thread a stack for signal handlers, so that an overflow of its own stack is noted too.
class CrumbOfThisThread {
 public:
  explicit CrumbOfThisThread(Breadcrumb* crumb);  // null: nothing is noted
  ~CrumbOfThisThread();
  CrumbOfThisThread(const CrumbOfThisThread&) = delete;

 private:
  std::unique_ptr<std::byte[]> stack_;
};

// Lets faults be noted from now on, in all threads. The process's business, once, before threads.
void NoteFaults();

}  // namespace feedwater::server
