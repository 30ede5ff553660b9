// The records of one dataset in one form (their bytes, coefficients, finished prefixes, seek
// indexes), kept in memory and on disk for the next epoch and the next job. Admitted records stay
// (memory_tier.h says why); when the room is used up, the rest is made anew each time.
//
// A record is in memory, on disk, in both, or not here. After a restart it is on disk only and is
// put into memory again when it is first read. What comes from disk proves itself by checksum.
//
// Every record carries the stamp of the file it was made from, and whoever asks names the stamp of
// the file as it should be (JobFiles): a record of another state of the file is not found, and the
// next Put takes its place.
//
// Thread-safe. Find takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/cache/block.h"
#include "server/cache/disk_tier.h"
#include "server/cache/memory_tier.h"

namespace feedwater::server {

class RecordCache {
 public:
  struct Options {
    int64_t records = 0;
    int64_t memory_limit = 0;  // of this cache; 0 keeps nothing in memory
    std::shared_ptr<ByteQuota> memory_quota;
    std::shared_ptr<MemoryBudget> budget;                      // may be null
    std::string folder;                                        // "" keeps nothing on disk
    std::string identity;                                      // of dataset and content
    int64_t disk_limit = std::numeric_limits<int64_t>::max();  // of this cache
    std::shared_ptr<ByteQuota> disk_quota;
    // Of the table of what is on disk, and of what is queued for it: the user's share; may be null.
    std::shared_ptr<MemoryBudget> disk_budget;
    std::shared_ptr<Saver> saver;  // null: one of its own, if it is on disk
  };
  // Where its table of records finds no room in quota or budget, or its folder cannot be used, the
  // cache does without that tier.
  static absl::StatusOr<std::unique_ptr<RecordCache>> Open(Options options);
  ~RecordCache();

  enum class Where { kNowhere, kMemory, kDisk };
  struct Found {
    Where where = Where::kNowhere;
    BlockView block;  // kMemory: lives as long as the cache
    Extent extent;    // kDisk: of disk()'s objects; TakeFromDisk looks at the bytes
  };
  Found Find(int64_t record, uint64_t stamp) const;  // counts a hit or a miss
  // The payload in memory, which lives as long as the cache; empty: it is not there. Counts
  // nothing: CountDirect does, once it was used.
  absl::Span<const std::byte> FindInMemory(int64_t record, uint64_t stamp) const;
  void CountDirect(uint64_t hits, uint64_t misses) const {
    memory_hits_.fetch_add(hits, std::memory_order_relaxed);
    misses_.fetch_add(misses, std::memory_order_relaxed);
  }
  // Records come in random order, so that each look of Find would wait for the machine's memory. A
  // caller that knows which records are next has it loaded meanwhile: first where the record lies,
  // and somewhat later its block.
  void PrefetchPlace(int64_t record) const {
    if (has_memory()) __builtin_prefetch(&in_memory_[static_cast<size_t>(record)]);
  }
  void PrefetchBlock(int64_t record) const;

  // Whether it has the record, perhaps of another state of its file. Counts nothing.
  bool Has(int64_t record) const;

  // Whether Put would keep the record now. Cheap; says no once all room is used.
  bool Wants(int64_t record, uint64_t stamp) const;
  // Keeps a copy of the payload where there is room.
  void Put(int64_t record, uint64_t stamp, absl::Span<const std::byte> payload);

  // What Find's extent, `from`, gave when it was read. A block that is damaged or was made from
  // another state of the file is taken out and counted, and the error says why: the record is then
  // made anew. A good one is put into memory, too, where there is room.
  absl::StatusOr<BlockView> TakeFromDisk(int64_t record, uint64_t stamp, const Extent& from,
                                         absl::Span<const std::byte> bytes);

  // What Find's extent gave could not be read: the record is then made anew.
  void ReadFailed(int64_t record, const Extent& from, const absl::Status& status);

  const ObjectSource* disk() const { return disk_.get(); }
  // It was to be on disk, and is not, or no longer: one that could not be written may be read
  // still.
  bool has_lost_disk() const {
    return !options_.folder.empty() &&
           (disk_ == nullptr || !disk_->is_readable() || disk_->has_failed());
  }
  bool has_memory() const { return !in_memory_.empty(); }
  // Opens the disk once more; `budget` is what Options::disk_budget was. What is in memory stays.
  // REQUIRES: nobody else uses the cache.
  void ReopenDisk(std::shared_ptr<MemoryBudget> budget);
  // Of a cache that is shared: the most that anybody asked for counts.
  void RaiseLimits(int64_t memory_limit, int64_t disk_limit);
  void Flush();  // waits for the disk

  struct Counts {
    int64_t memory_bytes = 0, disk_bytes = 0;
    int64_t memory_records = 0, disk_records = 0;
    uint64_t memory_hits = 0, disk_hits = 0, misses = 0, damaged = 0;
    uint64_t out_of_date = 0;  // blocks of another state of their file that were replaced
  };
  Counts counts() const;

 private:
  explicit RecordCache(Options options);
  void TakeMemoryTable();
  void OpenDisk(std::shared_ptr<MemoryBudget> budget);
  absl::Status OpenDiskTier(std::shared_ptr<MemoryBudget> budget);
  bool PutInMemory(int64_t record, uint64_t stamp, absl::Span<const std::byte> block);
  // Claims the place of a record that is not kept, or kept of another state of its file.
  static bool Claim(std::atomic<uint64_t>* place, bool is_out_of_date, uint64_t there,
                    std::atomic<int64_t>* kept);
  BlockView InMemory(uint64_t packed_place) const;
  void TakeOut(int64_t record, const Extent& from);

  const Options options_;
  std::vector<std::atomic<uint64_t>> in_memory_, on_disk_;  // packed places; empty without the tier
  std::vector<std::atomic<uint64_t>> disk_stamps_;  // of the files that the blocks on disk are of
  // Of the tables: memory's is part of what the quota of memory counts.
  MemoryReservation memory_table_, disk_table_;
  int64_t memory_table_bytes_ = 0;
  std::unique_ptr<MemoryTier> memory_;
  std::atomic<int64_t> memory_records_{0}, disk_records_{0};
  mutable std::atomic<uint64_t> memory_hits_{0}, disk_hits_{0}, misses_{0};
  std::atomic<uint64_t> damaged_{0}, out_of_date_{0};
  std::unique_ptr<DiskTier> disk_;  // last: the saver calls back
};

}  // namespace feedwater::server
