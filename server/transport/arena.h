// The shared memory of one session: a memfd without a name, allocated in full, bound to its NUMA
// node, prefaulted, and sealed so that only the mapping made here can ever write it. The client
// gets a read-only descriptor.
//
// Why each step: without fallocate a full machine is a SIGBUS at some later write; without prefault
// the pages would be charged to the trainer's control group when it reads them; an allocation
// beyond the control group's limit is a SIGKILL instead of an error, so the sum is checked first;
// F_SEAL_WRITE is refused while a writable mapping exists, so FUTURE_WRITE it is.
//
// The memory lives until its last mapping and descriptor are gone, in any process. An ArenaWatch
// counts it until then, whoever holds it.
//
// Thread safety: data() may be used from any thread, also while another one lets the memory go;
// everything else by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/base/fd.h"
#include "server/base/memory_budget.h"
#include "server/base/status.h"
#include "server/transport/arena_watch.h"

namespace feedwater::server {

class Arena {
 public:
  // `numa_node` -1 binds to none. Both budgets, the daemon's and the user's, may be null. `watch`
  // keeps the account of `owner`'s memory; without one it ends with this object. Takes about half a
  // millisecond a MiB. ResourceExhausted when a budget, the control group's limit, the watch or the
  // machine has no room.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(
      int64_t bytes, int numa_node, const std::shared_ptr<MemoryBudget>& budget,
      const std::shared_ptr<MemoryBudget>& user_budget = nullptr, ArenaWatch* watch = nullptr,
      uid_t owner = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // The descriptor for the client; the caller sends it and closes it. At most once.
  Fd TakeClientFd() { return std::move(client_fd_); }

  // Gives the daemon's hold on the shared memory up, although a worker may still write to data():
  // those addresses become private memory that nobody reads, until this object goes.
  void LetGo();

 private:
  Arena() = default;

  ArenaAccount account_;  // without a watch; destroyed last: after the memory is gone
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Fd client_fd_;
};

}  // namespace feedwater::server
