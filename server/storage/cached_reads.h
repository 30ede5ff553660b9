// Reads of what is in the page cache: many small ones in few system calls, none of which waits for
// a disk. Dataset files are never mapped: one that is cut off would be a SIGBUS.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/storage/engine.h"

namespace feedwater::server {

struct CachedRead {
  const OpenedFile* file = nullptr;  // that has no direct I/O
  int64_t offset = 0;
  std::byte* to = nullptr;
  size_t bytes = 0;
};

// One thread's, reused.
class CachedReads {
 public:
  // What follows in its file on the one before, or nearly so, is read with it. False: some of the
  // bytes are not in memory or not there any more, or this file system cannot tell; what stands in
  // the places of all is then undefined, and an ordinary read tells why.
  bool Read(absl::Span<const CachedRead> reads);
  uint64_t TakeCalls() { return std::exchange(calls_, 0); }  // since the last time

 private:
  std::vector<struct iovec> pieces_;
  uint64_t calls_ = 0;
};

}  // namespace feedwater::server
