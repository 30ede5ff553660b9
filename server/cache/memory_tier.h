// Blocks in memory. They are put one behind the other into segments and stay where they are until
// the tier ends: what is admitted stays, since under random epochs every record is as likely to be
// needed next as any other, and throwing one out for another wins nothing.
//
// Thread-safe. Get takes no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/cache/block_place.h"
#include "server/cache/byte_quota.h"

namespace feedwater::server {

class MemoryTier {
 public:
  // Takes at most `limit` bytes, each segment from `quota` and from `budget` (which may be null).
  MemoryTier(int64_t limit, std::shared_ptr<ByteQuota> quota, std::shared_ptr<MemoryBudget> budget);
  ~MemoryTier();

  // Copies the block. Nothing when there is no room for it.
  std::optional<BlockPlace> Put(absl::Span<const std::byte> block);
  // REQUIRES: `place` came from Put. 64 readable bytes follow the block.
  const std::byte* Get(const BlockPlace& place) const {
    return segments_[place.segment].load(std::memory_order_acquire) + place.offset;
  }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // of blocks
  // The last segment was refused.
  bool full() const { return full_.load(std::memory_order_relaxed); }
  // A limit that is less than before changes nothing. What was refused is tried once more: the
  // quota may have room again.
  void RaiseLimit(int64_t limit) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool AddSegment(uint64_t block_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<ByteQuota> quota_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::vector<std::atomic<std::byte*>> segments_;  // as many as may ever be
  std::atomic<int64_t> bytes_{0};
  std::atomic<bool> full_{false};

  Mutex mu_;
  std::vector<uint64_t> segment_bytes_ ABSL_GUARDED_BY(mu_);  // of those that are there
  uint64_t limit_ ABSL_GUARDED_BY(mu_);
  uint64_t all_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // their sum
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;       // offset in the last segment
  std::vector<MemoryReservation> reservations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
