// All that one daemon keeps of datasets: one RecordCache for each (dataset, form), shared by the
// jobs that need it, within two quotas of bytes, one of memory and one of disk.
//
//   state_dir/cache/lock                one daemon at a time; another one does without the disk
//   state_dir/cache/<name>/             one RecordCache (disk_tier.h); <name> is made of dataset
//   and form
//   state_dir/indexes/<dataset>.seek    seek indexes of its JPEGs (seek_index_store.h), by a quota
//   of their own
//
// A cache that nobody uses stays open: the next epoch or job finds it full. It is closed when
// somebody finds no room in memory, and the longest unused when too many are open: each has a table
// of its records, which counts against the quota of memory, and, on disk, two descriptors. Folders
// of caches that are not open count against the quota of disk, and are deleted piece by piece,
// longest unused first, when it has no room for a record. What else lies in these folders is
// somebody else's, and is left (cache_folder.h).
//
// A cache counts for the user who opened it first. Where users are limited (LimitUsers), each has a
// part of every quota, and room is made at the cost of the user who has most.
//
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/process_lock.h"
#include "server/cache/byte_quota.h"
#include "server/cache/cache_folder.h"
#include "server/cache/record_cache.h"
#include "server/cache/seek_index_store.h"

namespace feedwater::server {

class Cache {
 public:
  struct Options {
    int64_t memory_bytes = 0, disk_bytes = 0;
    std::string state_dir;                 // "" keeps nothing on disk
    std::shared_ptr<MemoryBudget> budget;  // may be null
    int64_t seek_index_bytes = 0;          // of memory
  };
  explicit Cache(Options options);
  ~Cache();

  struct Request {
    std::string dataset;  // 32 hex digits that no other dataset has
    std::string form;     // what is kept, its version included: "coefficients-2"
    int64_t records = 0;
    int64_t memory_bytes = 0, disk_bytes = 0;  // the most that this cache may take of the quotas
    uid_t user = 0;
  };
  // The cache of that dataset and form, opened or shared. Never fails for lack of room: it then
  // keeps less. One that is shared has the largest limits that were asked for.
  // What the disk takes of memory is reserved from the user's `share`; null: from the budget.
  absl::StatusOr<std::shared_ptr<RecordCache>> Get(const Request& request,
                                                   std::shared_ptr<MemoryBudget> share = nullptr)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Gives back the memory of one that nobody uses: of the user who has most of them, the longest
  // unused; with `only`, of that user alone; with `on_disk`, of those with a disk alone, whose
  // folders stay. False: there is none.
  bool CloseIdle(std::optional<uid_t> only = std::nullopt, bool on_disk = false)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The seek indexes of that dataset's images, opened or shared. Null: the quota is 0.
  std::shared_ptr<SeekIndexStore> SeekIndexesOf(const std::string& dataset, uid_t user = 0)
      ABSL_LOCKS_EXCLUDED(mu_);

  // A user has at most one part of so many of each quota; 1: no limit.
  void LimitUsers(int64_t parts) ABSL_LOCKS_EXCLUDED(mu_);

  const ByteQuota& memory() const { return *memory_; }
  int64_t memory_of_a_user() const ABSL_LOCKS_EXCLUDED(mu_);  // the most that one may have
  const ByteQuota& disk() const { return *disk_; }
  // Why nothing is kept on disk; "" when it is.
  const std::string& no_disk() const { return no_disk_; }

  struct Status {
    std::string dataset, form;
    int64_t records = 0;
    RecordCache::Counts counts;
  };
  std::vector<Status> Statuses() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::string name;
    Request request;                     // of who opened it first
    std::shared_ptr<RecordCache> cache;  // null: it is being opened
  };

  // The folder of a cache that is not open.
  struct UnusedFolder {
    std::string name;
    std::optional<uid_t> user;          // of this run of the daemon
    std::vector<SegmentFile> segments;  // by number
    int64_t bytes() const;
  };

  struct SeekEntry {
    std::string file;
    std::shared_ptr<SeekIndexStore> store;
    std::shared_ptr<ByteQuota> quota;
  };

  // One user's part.
  struct Quotas {
    std::shared_ptr<ByteQuota> memory, disk, seek_indexes;
  };

  bool KeepsOnDisk(const Request& request) const;
  // Whether the cache was opened without a tier that the request wants.
  bool IsLess(const RecordCache& cache, const Request& request) const;
  void TakeFolder() ABSL_LOCKS_EXCLUDED(mu_);
  void DeleteUnusedSeekFiles(const std::string& folder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Caches are opened and closed without the lock, since workers wait for it and a journal is read,
  // or what is queued is written. Until that is done nobody else opens the folder or deletes from
  // it.
  absl::StatusOr<std::shared_ptr<RecordCache>> Open(const std::string& name, const Request& request,
                                                    const Quotas& quotas,
                                                    std::shared_ptr<MemoryBudget> share)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Close(std::list<Entry> idle) ABSL_LOCKS_EXCLUDED(mu_);
  // Of one that nobody uses, whose disk did not work. Leaves the lock meanwhile.
  void ReopenDisk(std::list<Entry>::iterator entry, const std::shared_ptr<MemoryBudget>& share)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // At most so many that nobody uses, to be closed, as CloseIdle; with `on_disk` those with a disk.
  std::list<Entry> TakeIdle(size_t most, std::optional<uid_t> only = std::nullopt,
                            bool on_disk = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Quotas QuotasOf(uid_t user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes what nobody uses where the request could need its room.
  void MakeRoom(const Request& request, const Quotas& quotas) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t UnusedBytes() const ABSL_LOCKS_EXCLUDED(mu_);  // of folders
  bool AddUnused(const std::string& name, std::optional<uid_t> user) ABSL_LOCKS_EXCLUDED(mu_);
  void UseFolder(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool DeleteUnusedSegment() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::shared_ptr<ByteQuota> memory_, disk_, seek_indexes_;
  const std::shared_ptr<Saver> saver_ = Saver::Create();
  std::string folder_, no_disk_;
  ProcessLock lock_;
  mutable Mutex mu_;
  CondVar changed_;  // something was opened or closed
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> closing_ ABSL_GUARDED_BY(mu_);
  std::list<UnusedFolder> unused_ ABSL_GUARDED_BY(mu_);  // longest unused first
  int64_t parts_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uid_t, Quotas> quotas_ ABSL_GUARDED_BY(mu_);
  std::list<SeekEntry> seek_entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
