// Memory on huge pages, handed out in pieces. A direct read into 2 MiB pages is one segment for the
// device instead of one for each 4 KiB: twice to three times the rate on a virtual disk, at a sixth
// of the CPU time (scripts/bench read). Where the kernel has no huge pages to give, the pages are
// ordinary ones.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace feedwater::server {

// The address space is kSpread times what may be in use, so that pieces of different sizes always
// find room: first fit needs log2(largest ÷ smallest) times as much at most (Robson, 1977). What is
// resident stays within `bytes`: only the first `bytes` of addresses keep their pages when a piece
// ends, and only while nothing behind them is in use.
//
// Thread-safe. Pieces may outlive every pointer to the region but the one that they hold.
class HugeRegion {
 public:
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t kSpread = 8;  // addresses for each byte

  // Null when there is no address space.
  static std::shared_ptr<HugeRegion> Create(size_t bytes);
  ~HugeRegion();
  HugeRegion(const HugeRegion&) = delete;

  // A piece, aligned to kAlignment; its bytes are any. Null when no hole is large enough.
  std::byte* Take(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // REQUIRES: Take gave it with so many bytes.
  void Give(std::byte* piece, size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives the pages of what is not in use back to the system.
  void ReturnFree() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  HugeRegion(std::byte* begin, size_t mapped, size_t kept);
  void ReturnPages(size_t offset, size_t bytes) const;
  // Of the part beyond kept_: pages that may be used count in the system's promises of memory.
  bool Protect(size_t offset, size_t bytes, int protection) const;

  std::byte* const begin_;
  const size_t mapped_, kept_;
  Mutex mu_;
  std::map<size_t, size_t> holes_ ABSL_GUARDED_BY(mu_);  // offset -> bytes; no two touch
  size_t in_use_behind_ ABSL_GUARDED_BY(mu_) = 0;        // bytes of pieces beyond kept_
};

}  // namespace feedwater::server
