// Blocks on disk, in a folder of their own:
//
//   segment-00000 ...  blocks, one behind the other, at most 128 MiB a file; only ever appended to
//   journal            a header that names the dataset and the content, then 32 bytes for each
//   block: record, place,
//                      stamp, hash; written after the block
//
// Killed at any moment, the folder holds a journal whose last entry may be cut, and blocks that the
// journal does not name: the next start drops the former and leaves the latter, which count, and
// begins another segment. After a loss of power a named block may not have reached the disk; its
// own hashes tell (block.h). So nothing is synced while records stream in. Later entries win, and a
// place of 0 takes a record out.
//
// Thread-safe. Append only copies into a bounded queue, whose bytes are in the budget; the saver
// writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/fd.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/cache/block_place.h"
#include "server/cache/byte_quota.h"
#include "server/cache/saver.h"
#include "server/storage/object_source.h"

namespace feedwater::server {

class DiskTier final : public ObjectSource {
 public:
  struct Options {
    std::string folder;    // made where it is missing
    std::string identity;  // of the dataset and the content; a folder of another one is emptied
    int64_t records = 0;
    int64_t limit = std::numeric_limits<int64_t>::max();  // of this folder, within the quota
    std::shared_ptr<ByteQuota> quota;
    std::shared_ptr<MemoryBudget> budget;  // of what is queued; may be null
    std::shared_ptr<Saver> saver;          // null: one of its own
    // Called for every block that the folder held at the start, then by the saver for each that
    // was written (`place`) or could not be (null).
    std::function<void(int64_t record, const BlockPlace* place, uint64_t stamp)> placed;
  };
  // Errors are those of the folder: not a place to write, no space.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Open(Options options);
  ~DiskTier() override;  // writes what is queued

  // False, and nothing happens, when quota or queue have no room or the disk has failed. Else
  // `placed` is called later.
  bool Append(int64_t record, uint64_t stamp, absl::Span<const std::byte> block);
  // The block turned out to be damaged or out of date: the next start must not find it.
  void Forget(int64_t record);
  // A block could not be read, or was read. Where many in a row could not, the disk is used no
  // longer.
  void ReadFailed(const absl::Status& status);
  void ReadWell() {
    int errors = read_errors_.load(std::memory_order_relaxed);
    // The last one stays, also where it comes meanwhile.
    while (errors > 0 && errors < kMostReadErrors &&
           !read_errors_.compare_exchange_weak(errors, 0)) {
    }
  }
  bool is_readable() const {
    return read_errors_.load(std::memory_order_relaxed) < kMostReadErrors;
  }
  // It could not be written, or not be read: nothing more is written there.
  bool has_failed() const { return is_broken_.load(std::memory_order_relaxed); }
  // Waits until everything queued is written. For tests and for a tidy end.
  void Flush();

  const Root& root() const override { return *root_; }
  std::string ObjectPath(uint32_t segment) const override;
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  // of blocks on disk
  bool full() const {
    return full_.load(std::memory_order_relaxed) || is_broken_.load(std::memory_order_relaxed);
  }
  // A limit that is less than before changes nothing. What was refused is tried once more: the
  // quota may have room again.
  void RaiseLimit(int64_t limit);

 private:
  struct Item {
    int64_t record = 0;
    uint64_t stamp = 0;
    std::vector<std::byte> block;  // empty: forget the record
    MemoryReservation memory = {};
  };
  struct JournalEntry;
  static constexpr int kMostReadErrors = 8;  // each may have taken seconds

  explicit DiskTier(Options options);
  absl::Status Recover();
  absl::Status StartJournal();
  absl::Status ReplayJournal(uint64_t journal_bytes);
  bool WriteNext();  // the saver's step
  bool Queue(int64_t record, uint64_t stamp, absl::Span<const std::byte> block)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Carry(const Item& item);
  absl::Status WriteItem(const Item& item, BlockPlace* place);
  absl::Status AppendJournal(int64_t record, uint64_t packed_place, uint64_t stamp);

  const Options options_;
  std::unique_ptr<Root> root_;
  Fd folder_, journal_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> limit_;
  std::atomic<bool> full_{false};       // a block found no room
  std::atomic<bool> is_broken_{false};  // the disk has failed
  std::atomic<int> read_errors_{0};

  // Of the saver alone, once it writes.
  Fd segment_;
  bool failed_ = false;
  uint32_t segment_number_ = 0;
  uint64_t segment_end_ = 0, journal_end_ = 0;

  Mutex mu_;
  CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<Saver::Task> writer_;
};

}  // namespace feedwater::server
