#include "server/pipeline/job_files.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"

namespace feedwater::server {
namespace {

constexpr int64_t kClockTickNs = 20'000'000;  // file times advance in ticks of 10 ms at most
constexpr int64_t kLookAroundNs = 1'000'000'000;
constexpr int64_t kLookAroundShare = 50;  // it takes one in so many of the time

}  // namespace

JobFiles::JobFiles(std::shared_ptr<const Dataset> dataset, std::shared_ptr<FileCache> files)
    : dataset_(std::move(dataset)),
      files_(std::move(files)),
      opened_ns_(MonotonicNs()),
      opened_clock_ns_(ClockNs(CLOCK_REALTIME)),
      look_around_ns_(opened_ns_ + kLookAroundNs) {}

absl::StatusOr<std::shared_ptr<JobFiles>> JobFiles::Create(std::shared_ptr<const Dataset> dataset,
                                                           std::shared_ptr<FileCache> files,
                                                           MemoryBudget* budget) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(Stamp) == sizeof(uint64_t));
  const auto objects = static_cast<size_t>(dataset->objects());
  std::shared_ptr<JobFiles> made(new JobFiles(std::move(dataset), std::move(files)));
  if (budget != nullptr) {
    FW_ASSIGN_OR_RETURN(
        made->reservation_,
        budget->Reserve("file stamps", static_cast<int64_t>(objects * sizeof(Stamp))));
  }
  void* const memory = std::calloc(objects, sizeof(Stamp));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the stamps of ", objects, " files"));
  }
  made->stamps_.reset(static_cast<Stamp*>(memory));
  return made;
}

absl::Status JobFiles::Settle(uint32_t object, const FileCache::Facts& now, Reach reach) {
  uint64_t known = stamps_[object].load(std::memory_order_acquire);
  if (known == now.stamp) return absl::OkStatus();
  const auto changed = [&](absl::string_view what) {
    return FileHasChanged(
        absl::StrCat(dataset_->root().path(), "/", dataset_->ObjectPath(object), " ", what));
  };
  if (known == 0) {
    const int64_t indexed = dataset_->ObjectBytes(object);
    if (now.size != indexed) {
      dataset_->MarkOutOfDate();
      return changed(absl::StrCat("has ", now.size, " bytes and had ", indexed,
                                  " when the dataset was indexed"));
    }
    if (now.changed_ns > opened_clock_ns_ + kClockTickNs)
      return changed("has changed since this job was opened");
    if (stamps_[object].compare_exchange_strong(known, now.stamp)) return LookAround(reach);
    if (known == now.stamp) return absl::OkStatus();
  }
  return changed("has changed since this job began to read it");
}

// A folder with other files in it may have taken the place of the one that was indexed: they need
// not be newer than the job.
absl::Status JobFiles::LookAround(Reach reach) {
  const bool is_last =
      looked_at_.fetch_add(1, std::memory_order_relaxed) + 1 == dataset_->objects();
  int64_t due_ns = look_around_ns_.load(std::memory_order_relaxed);
  const int64_t now_ns = MonotonicNs();
  const bool is_due =
      now_ns >= due_ns && look_around_ns_.compare_exchange_strong(due_ns, now_ns + kLookAroundNs);
  if (!is_last && !is_due && !has_changed_.load(std::memory_order_relaxed)) return absl::OkStatus();
  const absl::Status same = dataset_->LookAgain(reach);
  const int64_t cost_ns = MonotonicNs() - now_ns;
  if (cost_ns > kLookAroundNs / kLookAroundShare)
    look_around_ns_ = now_ns + kLookAroundShare * cost_ns;
  if (!absl::IsFailedPrecondition(same)) return absl::OkStatus();
  has_changed_.store(true, std::memory_order_relaxed);  // for every file that comes, at once
  return FileHasChanged(same.message());
}

absl::StatusOr<std::shared_ptr<const OpenedFile>> JobFiles::Open(uint32_t object, Reach reach,
                                                                 uint32_t user) {
  FW_ASSIGN_OR_RETURN(
      std::shared_ptr<const OpenedFile> file,
      files_->Open(dataset_->root(), dataset_->ObjectPath(object), reach, user, opened_ns_));
  FW_RETURN_IF_ERROR(Settle(object, {file->size, file->stamp, file->changed_ns}, reach));
  return file;
}

absl::StatusOr<uint64_t> JobFiles::StampOf(const std::vector<Extent>& extents, Reach reach) {
  uint64_t sum = 0;
  for (const Extent& extent : extents) {
    if (extent.length == 0) continue;
    uint64_t stamp = stamps_[extent.object].load(std::memory_order_acquire);
    if (stamp == 0) {
      FW_ASSIGN_OR_RETURN(
          const FileCache::Facts now,
          files_->Look(dataset_->root(), dataset_->ObjectPath(extent.object), reach, opened_ns_));
      FW_RETURN_IF_ERROR(Settle(extent.object, now, reach));
      stamp = now.stamp;
    }
    sum += stamp;
  }
  return sum;
}

}  // namespace feedwater::server
