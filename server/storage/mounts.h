// What a file lies on: its mount, whether that can hang, and the kind of storage below it. Told by
// the kernel's tables, without asking the file system itself, which may be the one that does not
// answer. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/storage/storage_kind.h"

namespace feedwater::server {

struct MountFacts {
  Mount mount;
  // Whether calls into it end for certain as soon as a device of this machine answers. False where
  // that is not known.
  bool is_local = false;
  // Whether a file that is moved or linked to a path gets a new change time there.
  bool shows_moves = false;
  uint64_t device = 0;  // as in stat(2)
  Storage storage;
};
// Of an open file or folder; looked up once for each mount. Never null.
std::shared_ptr<const MountFacts> FactsOfMount(int fd);

inline bool IsLocalMount(int fd) { return FactsOfMount(fd)->is_local; }

}  // namespace feedwater::server
