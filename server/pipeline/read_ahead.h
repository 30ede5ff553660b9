// Reads the windows of a job's `shuffle: block` ahead, in the order in which they are stored and in
// large pieces, where single reads are dear: on disks whose heads move, and behind networks. A
// window's records are used in random order, and come from the kernel's page cache then.
//
// One window beyond the one that is worked on is read ahead, in step with it: at most two windows
// stand in the page cache, and at most kMostBytes. Records that a cache has are left out. A world
// whose ranks are mostly elsewhere uses little of each window here, so nothing is read ahead.
//
// It is advice to the kernel, given by a thread of StorageCalls, where it may hang without harm.
// What a read gives, or its error, never depends on it.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/loaded_pipeline.h"
#include "server/pipeline/read_counts.h"
#include "server/sampler/order.h"
#include "server/storage/storage_calls.h"
#include "server/storage/storage_kind.h"

namespace feedwater::server {

class ReadAhead : public std::enable_shared_from_this<ReadAhead> {
 public:
  static constexpr int64_t kMostBytes = 1
                                        << 30;  // and an eighth of the machine's or cgroup's memory
  static constexpr int64_t kPieceBytes = 1 << 20;  // pieces end at multiples of it: file stripes

  struct Parts {
    std::shared_ptr<const LoadedPipeline> pipeline;
    std::shared_ptr<JobFiles> files;
    std::shared_ptr<StorageCalls> calls;
    std::shared_ptr<ReadCounts> counts;
    uint32_t user = 0;                // whose threads it takes
    std::optional<StorageKind> kind;  // nothing: what each file lies on
    int64_t most_bytes = kMostBytes;
    // Asks for a piece of an open file; null: of the kernel.
    std::function<void(const OpenedFile& file, int64_t offset, int64_t length)> advise;
  };
  // Null where there are no windows: another shuffle, a mix.
  static std::shared_ptr<ReadAhead> Create(Parts parts, const OrderConfig& order);

  // Samples at these positions of the order are started, the lowest and the highest of them given.
  // `attached` ranks of the world are here. Whether all of their windows have been read ahead.
  bool Reach(const std::shared_ptr<const EpochOrder>& order, int64_t first, int64_t last,
             int64_t attached, int64_t world) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop();  // what is under way ends soon
  // Of the job: what has not begun lets go of all that it holds, too.
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  // Stopped, or there is no use in it.
  bool is_off() const { return off_.load(std::memory_order_relaxed); }

 private:
  class Pump;
  struct Run {  // a range of a file, without larger gaps
    uint32_t object = 0;
    int64_t offset = 0, end = 0;
    int64_t extents = 0;
  };
  explicit ReadAhead(Parts parts) : parts_(std::move(parts)) {}

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  bool FitsMemory(int64_t window_records) const;
  void Advise(const EpochOrder& order, int64_t from, int64_t to);
  void AdviseRun(const Run& run);

  const Parts parts_;
  std::atomic<bool> off_{false};

  // Of the one thread that works.
  bool checked_memory_ = false;
  int64_t runs_ = 0, lone_ = 0;  // of all runs, those of one extent
  uint32_t last_object_ = 0;
  int64_t last_end_ = -1;

  Mutex mu_;
  std::shared_ptr<const EpochOrder> order_ ABSL_GUARDED_BY(mu_);
  int of_earlier_ ABSL_GUARDED_BY(mu_) = 0;  // calls in a row that were of an epoch before it
  // Places: those from `began_` to `next_` have been read ahead, and those to `target_` should be.
  int64_t began_ ABSL_GUARDED_BY(mu_) = 0, next_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t target_ ABSL_GUARDED_BY(mu_) = 0;
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  std::weak_ptr<Pump> pump_ ABSL_GUARDED_BY(mu_);  // the last one
};

}  // namespace feedwater::server
