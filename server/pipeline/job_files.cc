#include "server/pipeline/job_files.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/clock.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr int64_t kLookAroundNs = 1'000'000'000;
constexpr int64_t kClockAheadNs = 60'000'000'000;  // an earlier daemon's, at most
constexpr int64_t kLookAroundShare = 50;           // it takes one in so many of the time

constexpr uint64_t kNothingThere = 1;
constexpr size_t kVersionSize = 2;  // of an identity, at its beginning

}  // namespace

JobFiles::JobFiles(std::shared_ptr<const Dataset> dataset, std::shared_ptr<FileCache> files,
                   std::shared_ptr<MemoryBudget> budget)
    : dataset_(std::move(dataset)),
      files_(std::move(files)),
      budget_(std::move(budget)),
      opened_ns_(MonotonicNs()),
      look_around_ns_(opened_ns_ + kLookAroundNs),
      as_of_ns_(ClockNs(CLOCK_REALTIME)) {
  Dependencies dependencies = dataset_->dependencies(as_of_ns_);
  later_ns_ = std::move(dependencies.later_ns);
  identity_ = std::move(dependencies.identity);
}

std::shared_ptr<JobFiles> JobFiles::Create(std::shared_ptr<const Dataset> dataset,
                                           std::shared_ptr<FileCache> files,
                                           std::shared_ptr<MemoryBudget> budget) {
  return std::shared_ptr<JobFiles>(
      new JobFiles(std::move(dataset), std::move(files), std::move(budget)));
}

absl::Status JobFiles::Prepare() {
  if (stamps_.load(std::memory_order_acquire) != nullptr) return absl::OkStatus();
  static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Stamp) == sizeof(uint64_t));
  const auto objects = static_cast<size_t>(dataset_->objects());
  MutexLock lock(&mu_);
  if (memory_ != nullptr) return absl::OkStatus();
  MemoryReservation reservation;
  if (budget_ != nullptr) {
    FW_ASSIGN_OR_RETURN(
        reservation,
        budget_->Reserve("file stamps", static_cast<int64_t>(objects * sizeof(Stamp))));
  }
  memory_.reset(static_cast<Stamp*>(std::calloc(objects, sizeof(Stamp))));
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the stamps of ", objects, " files"));
  }
  reservation_ = std::move(reservation);
  stamps_.store(memory_.get(), std::memory_order_release);
  return absl::OkStatus();
}

FilesMark JobFiles::mark() const {
  MutexLock lock(&mu_);
  return {as_of_ns_, identity_};
}

absl::Status JobFiles::KeepSince(const FilesMark& mark) {
  const int64_t now_ns = ClockNs(CLOCK_REALTIME);
  if (mark.as_of_ns > now_ns + kClockAheadNs) {
    return FileHasChanged(
        "this machine's clock was set back since this rank began, so that files may have changed");
  }
  const int64_t since_ns = mark.as_of_ns + kFileTimeTickNs;
  Dependencies dependencies = dataset_->dependencies(mark.as_of_ns);
  const bool is_known = !identity_.empty() && mark.identity == identity_;
  if (!is_known && dependencies.newest_file_ns > since_ns) {
    return FileHasChanged(
        absl::StrCat(dependencies.newest_file, " has changed since this rank began"));
  }
  // One of another version says nothing.
  if (!is_known && !identity_.empty() &&
      mark.identity.substr(0, kVersionSize) == identity_.substr(0, kVersionSize)) {
    std::vector<std::string> roots;
    for (const Root* root : dataset_->roots()) roots.push_back(root->path());
    return FileHasChanged(absl::StrCat("a folder or file of the dataset in ",
                                       absl::StrJoin(roots, ", "),
                                       " was exchanged for another one since this rank began"));
  }
  MutexLock lock(&mu_);
  if (newest_ns_ > since_ns)
    return FileHasChanged("a file that the job has read has changed since this rank began");
  if (mark.as_of_ns < as_of_ns_) {
    as_of_ns_ = mark.as_of_ns;
    if (is_known) later_ns_ = std::move(dependencies.later_ns);
  }
  return absl::OkStatus();
}

absl::Status JobFiles::Settle(uint32_t object, const FileCache::Facts& now, Reach reach) {
  Stamp& stamp = StampAt(object);
  uint64_t known = stamp.load(std::memory_order_acquire);
  if (known == now.stamp) return absl::OkStatus();
  const auto changed = [&](absl::string_view what) {
    return FileHasChanged(absl::StrCat(dataset_->RootOf(object).path(), "/",
                                       dataset_->ObjectPath(object), " ", what));
  };
  // Where a look finds it, too, the index that is saved by now may be a newer one.
  const auto mark_out_of_date = [&] {
    if (!absl::IsFailedPrecondition(dataset_->LookAgain(reach))) dataset_->MarkOutOfDate(object);
  };
  if (known == 0) {
    const int64_t indexed = dataset_->ObjectBytes(object);
    if (now.size != indexed) {
      mark_out_of_date();
      return changed(absl::StrCat("has ", now.size, " bytes and had ", indexed,
                                  " when the dataset was indexed"));
    }
    // A time that has not come yet is of another clock, or ours was set back: it tells nothing.
    // One that was unpacked is as old as what it was made from, which LookAround looks at.
    const bool is_own = absl::c_linear_search(dataset_->roots(), &dataset_->RootOf(object));
    // Another file may have stood here for a moment only, so that no look finds it.
    if (const auto then = dataset_->IndexedAs(object);
        then.has_value() && (now.changed_ns != then->changed_ns ||
                             now.modified_ns != then->modified_ns.value_or(now.modified_ns) ||
                             now.inode != then->inode.value_or(now.inode))) {
      mark_out_of_date();
      return changed("has changed since the dataset was indexed");
    }
    if (is_own && now.changed_ns <= ClockNs(CLOCK_REALTIME)) {
      MutexLock lock(&mu_);
      if (!absl::c_binary_search(later_ns_, now.changed_ns)) {
        if (now.changed_ns > as_of_ns_ + kFileTimeTickNs)
          return changed("has changed since this job was opened");
        newest_ns_ = std::max(newest_ns_, now.changed_ns);
      }
    }
    // Another folder may stand here for a moment only, with files as old and as large as these.
    if (is_own) FW_RETURN_IF_ERROR(Judge(dataset_->LookAtFolderOf(object, reach)));
    // Counted before the look: of several threads that have the last files, the one that is counted
    // last looks after all of them have seen theirs.
    const bool is_last = looked_at_.fetch_add(1) + 1 >= dataset_->objects();
    const absl::Status same = LookAround(is_last, reach);
    if (same.ok() && stamp.compare_exchange_strong(known, now.stamp)) return absl::OkStatus();
    looked_at_.fetch_sub(1);
    FW_RETURN_IF_ERROR(same);  // and whoever asks for the file next has to look, too
    if (known == now.stamp) return absl::OkStatus();
  }
  return changed("has changed since this job began to read it");
}

// What a look at folders says of the job's files.
absl::Status JobFiles::Judge(const absl::Status& look) {
  if (absl::IsFailedPrecondition(look)) {
    has_changed_.store(true, std::memory_order_relaxed);  // for every file that comes, at once
    return FileHasChanged(look.message());
  }
  if (IsElsewhere(look) || IsTransient(look)) return look;  // not told yet
  return absl::OkStatus();
}

// A folder with other files in it may have taken the place of the one that was indexed: they need
// not be newer than the job. Until a look has ended everybody looks, so that nobody goes on with a
// file while another thread is just finding out.
absl::Status JobFiles::LookAround(bool is_last, Reach reach) {
  const int64_t now_ns = MonotonicNs();
  const bool is_due = now_ns >= look_around_ns_.load(std::memory_order_relaxed);
  if (!is_last && !is_due && !has_changed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  FW_RETURN_IF_ERROR(Judge(dataset_->LookAgain(reach, Dataset::Look::kGoesOn)));
  const int64_t pause_ns = std::max(kLookAroundNs, kLookAroundShare * (MonotonicNs() - now_ns));
  look_around_ns_.store(now_ns + pause_ns, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const OpenedFile>> JobFiles::Open(uint32_t object, Reach reach,
                                                                 uint32_t user) {
  FW_RETURN_IF_ERROR(Prepare());
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const OpenedFile> file,
                      files_->Open(dataset_->RootOf(object), dataset_->ObjectPath(object), reach,
                                   user, opened_ns_));
  FW_RETURN_IF_ERROR(Settle(
      object, {file->size, file->stamp, file->inode, file->modified_ns, file->changed_ns, true},
      reach));
  return file;
}

absl::StatusOr<uint64_t> JobFiles::StampOf(const std::vector<Extent>& extents, Reach reach) {
  FW_RETURN_IF_ERROR(Prepare());
  uint64_t all = 0;
  for (const Extent& extent : extents) {
    uint64_t stamp = StampAt(extent.object).load(std::memory_order_acquire);
    if (stamp == 0) {
      absl::StatusOr<FileCache::Facts> now = files_->Look(
          dataset_->RootOf(extent.object), dataset_->ObjectPath(extent.object), reach, opened_ns_);
      // Empty when it was indexed: no file, as before (a link to nothing, a folder, no name at
      // all), or it has gone meanwhile.
      const bool is_no_file = now.ok() ? !now->is_file : absl::IsNotFound(now.status());
      if (is_no_file && dataset_->ObjectBytes(extent.object) == 0)
        now = FileCache::Facts{.size = 0, .stamp = kNothingThere};
      FW_RETURN_IF_ERROR(now.status());
      FW_RETURN_IF_ERROR(Settle(extent.object, *now, reach));
      stamp = now->stamp;
    }
    // In their order: files of one record that took each other's place are another record.
    all = all == 0 ? stamp : XXH3_64bits_withSeed(&stamp, sizeof(stamp), all) | 1;
  }
  return all;
}

}  // namespace feedwater::server
