// What the files of a job's dataset are: each as it was when the job first looked at it, at some
// moment after the job was opened. From then on the job takes nothing else for that file: what it
// reads must come from it, and what a cache gives must have been made of it. So a job whose files
// change gives what it has read before, or ends with an error that names the file; it never gives
// some samples of the one state and some of the other.
//
// A file that the job has not looked at yet is refused, too, when it was changed after the job was
// opened: others may have been read as they were before. Its change time shows that. It does not
// show a change within 20 ms, or where the file system's clock is behind ours or as far ahead of it
// as the change is old. So a file that is in the index (a shard, a table) must have the inode and
// the times that stand there, and the folder that a file stands in must be the one that was
// indexed, since another one with other files of the same names may have taken its place. As long
// as there are files that were not looked at, all folders and files that the index depends on are
// looked at, too: once a second, and with the last file. Files may come to the folders and go: what
// takes a file's place shows it by its change time, or the folder must not have changed at all
// (Root::ShowsMoves). A rank that has lost its daemon goes on with files as they were when its
// stream was first opened: the new job counts as opened then.
//
// A file is known by its stamp (storage/engine.h): device, inode, size, times. A look costs one
// system call or so, once for each file in a job's life.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/source/dataset.h"
#include "server/storage/engine.h"

namespace feedwater::server {

// What a rank that has lost its daemon brings along.
struct FilesMark {
  int64_t as_of_ns = 0;  // CLOCK_REALTIME, in nanoseconds; 0: the rank is new
  std::string identity;  // Dependencies::identity
};

class JobFiles : public std::enable_shared_from_this<JobFiles> {
 public:
  // `budget` may be null. Takes no memory yet.
  static std::shared_ptr<JobFiles> Create(std::shared_ptr<const Dataset> dataset,
                                          std::shared_ptr<FileCache> files,
                                          std::shared_ptr<MemoryBudget> budget);
  // Takes the memory for the stamps, where no look has done so. ResourceExhausted: there is none.
  absl::Status Prepare() ABSL_LOCKS_EXCLUDED(mu_);
  // A rank has read files of this dataset since this mark was taken: from now on those that have
  // changed since are refused. FailedPrecondition: one is known to have changed.
  absl::Status KeepSince(const FilesMark& mark) ABSL_LOCKS_EXCLUDED(mu_);
  // As of the job's opening, or the earliest moment of KeepSince.
  FilesMark mark() const ABSL_LOCKS_EXCLUDED(mu_);
  MemoryBudget* share() const { return budget_.get(); }  // of the job's user; may be null

  // The file, opened, as the job knows it. FailedPrecondition when it is another one now;
  // IsElsewhere where `reach` does not lead to it.
  absl::StatusOr<std::shared_ptr<const OpenedFile>> Open(uint32_t object, Reach reach,
                                                         uint32_t user);

  // Of the files of these extents, in their order; the same errors.
  absl::StatusOr<uint64_t> StampOf(const std::vector<Extent>& extents, Reach reach);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Stamp = std::atomic<uint64_t>;
  JobFiles(std::shared_ptr<const Dataset> dataset, std::shared_ptr<FileCache> files,
           std::shared_ptr<MemoryBudget> budget);
  Stamp& StampAt(uint32_t object) const {  // REQUIRES: Prepare
    return stamps_.load(std::memory_order_acquire)[object];
  }
  // What the file was when it was looked at becomes what it is for the job, unless it was something
  // else before.
  absl::Status Settle(uint32_t object, const FileCache::Facts& now, Reach reach);
  absl::Status LookAround(bool is_last, Reach reach);
  absl::Status Judge(const absl::Status& look);

  const std::shared_ptr<const Dataset> dataset_;
  const std::shared_ptr<FileCache> files_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::string identity_;                 // constant
  const int64_t opened_ns_;              // MonotonicNs
  std::atomic<int64_t> looked_at_{0};    // files, and those that are being settled
  std::atomic<int64_t> look_around_ns_;  // when the next time is due
  std::atomic<bool> has_changed_{false};
  std::atomic<Stamp*> stamps_{nullptr};  // by object; 0: not looked at yet. Null before Prepare

  mutable Mutex mu_;
  int64_t as_of_ns_ ABSL_GUARDED_BY(mu_);  // CLOCK_REALTIME
  // Later times with which files were indexed all the same, by a clock that was ahead.
  std::vector<int64_t> later_ns_ ABSL_GUARDED_BY(mu_);
  int64_t newest_ns_ ABSL_GUARDED_BY(mu_) = 0;  // the last change of the files that were settled
  // From calloc: pages of files that nobody reads are never made.
  std::unique_ptr<Stamp[], Free> memory_ ABSL_GUARDED_BY(mu_);
  MemoryReservation reservation_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
