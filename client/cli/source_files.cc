#include "client/cli/source_files.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client/cli/progress.h"
#include "client/cli/worker_threads.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/source/contents.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"
#include "server/storage/stat_now.h"

namespace feedwater::cli {
namespace {

constexpr uint64_t kNoFile = 1;
constexpr int64_t kCountEvery = 256;  // files, for the progress

// Never 0.
uint64_t NumberOf(const struct stat& info) {
  const uint64_t parts[] = {info.st_ino, static_cast<uint64_t>(info.st_size),
                            static_cast<uint64_t>(server::Nanoseconds(info.st_mtim)),
                            static_cast<uint64_t>(server::Nanoseconds(info.st_ctim))};
  return XXH3_64bits(parts, sizeof(parts)) | 1;
}

std::string PathOf(const server::Dataset& dataset, uint32_t object) {
  return absl::StrCat(dataset.RootOf(object).path(), "/", dataset.ObjectPath(object));
}

}  // namespace

WritingOrder::WritingOrder(int64_t records, std::optional<uint64_t> shuffle) {
  if (!shuffle) return;
  order_.emplace(records, server::EpochKey(*shuffle, /*epoch=*/0), server::ShuffleUse::kRecords);
}

// A digest of every byte says all of the files, whatever their times.
SourceFiles::SourceFiles(const LocalPipeline& local)
    : local_(local),
      is_needed_(local.dataset().giver() == nullptr && !server::IsReadWhole(local.dataset())),
      roots_(local.dataset().roots()) {}

absl::StatusOr<uint64_t> SourceFiles::StateOf(int64_t record, Of what) {
  if (!is_needed_) return 0;
  extents_.clear();
  local_.dataset().Extents(record, &extents_);
  uint64_t all = 0;
  for (const server::Extent& extent : extents_) {
    if (extent.object != last_object_) {
      FW_ASSIGN_OR_RETURN(last_state_, StateOfObject(extent.object, what));
      last_object_ = extent.object;
    }
    if (last_state_ == 0) continue;
    all = all == 0 ? last_state_ : XXH3_64bits_withSeed(&last_state_, sizeof(last_state_), all) | 1;
  }
  return all;
}

absl::StatusOr<uint64_t> SourceFiles::StateOfObject(uint32_t object, Of what) {
  const server::Dataset& dataset = local_.dataset();
  const server::Root& root = dataset.RootOf(object);
  // What was unpacked may be unpacked anew. The index knows what it was made from.
  if (!absl::c_linear_search(roots_, &root)) return 0;
  const absl::StatusOr<struct stat> info = root.Stat(dataset.ObjectPath(object));
  if (!info.ok() && server::TellsOfTheMachine(info.status())) return info.status();
  if (!info.ok() || !S_ISREG(info->st_mode)) return kNoFile;
  if (what == Of::kJob) {
    one_.assign(1, {object, 0, dataset.ObjectBytes(object)});
    FW_ASSIGN_OR_RETURN(const uint64_t read, local_.job->StampOf(one_, server::Reach::kAnywhere));
    if (read != server::FileStamp(*info)) {
      return server::FileHasChanged(
          absl::StrCat(PathOf(dataset, object), " has changed since it was read"));
    }
  }
  if (const int64_t at_ns = server::Nanoseconds(info->st_ctim); at_ns > changed_ns_) {
    changed_ns_ = at_ns;
    changed_object_ = object;
  }
  return NumberOf(*info);
}

SourceFiles::Change SourceFiles::TakeLastChange() {
  Change change;
  change.at_ns = std::exchange(changed_ns_, 0);
  const int64_t object = std::exchange(changed_object_, -1);
  if (object >= 0) change.file = PathOf(local_.dataset(), static_cast<uint32_t>(object));
  last_object_ = -1;
  return change;
}

namespace {

class Looking {
 public:
  Looking(const LocalPipeline& local, const ShardJournal& journal, const WritingOrder& order,
          std::string what)
      : local_(local), journal_(journal), order_(order), what_(std::move(what)) {}

  absl::StatusOr<std::string> Go(size_t jobs) {
    Progress progress(what_, "records looked at", Progress::Elsewhere::kLines);
    FW_RETURN_IF_ERROR(RunInThreads(
        std::min(jobs, journal_.shards().size()), what_, [this] { return WorkUntilDone(); },
        [&] { progress.Update(done_, journal_.next_position()); }, &stop_));
    server::MutexLock lock(&mu_);
    if (changed_shard_ == journal_.shards().size()) return "";
    return absl::StrCat("what ", journal_.FileOf(changed_shard_), " in ", journal_.folder(),
                        " was made from has changed since",
                        change_.file.empty() ? "" : absl::StrCat(", most likely ", change_.file));
  }

 private:
  // Shards are taken in their order, and whoever has begun one ends it: the first one that has
  // changed is found.
  absl::Status WorkUntilDone() {
    SourceFiles files(local_);
    while (!stop_) {
      const size_t number = next_shard_.fetch_add(1);
      if (number >= journal_.shards().size()) break;
      const Shard& shard = journal_.shards()[number];
      if (shard.files.empty()) continue;
      ShardState state;
      for (int64_t i = 0; i < shard.positions; ++i) {
        const int64_t record = order_.At(shard.first + i);
        FW_ASSIGN_OR_RETURN(const uint64_t now, files.StateOf(record, SourceFiles::Of::kNow));
        state.Add(now);
        if (i % kCountEvery == 0) done_ += std::min(kCountEvery, shard.positions - i);
      }
      SourceFiles::Change change = files.TakeLastChange();
      if (state.Text() == shard.files) continue;
      stop_ = true;
      server::MutexLock lock(&mu_);
      if (number >= changed_shard_) continue;
      changed_shard_ = number;
      change_ = std::move(change);
    }
    return absl::OkStatus();
  }

  const LocalPipeline& local_;
  const ShardJournal& journal_;
  const WritingOrder& order_;
  const std::string what_;
  std::atomic<size_t> next_shard_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> stop_{false};

  server::Mutex mu_;
  size_t changed_shard_ ABSL_GUARDED_BY(mu_) = journal_.shards().size();
  SourceFiles::Change change_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::string> FindChangedSource(const LocalPipeline& local,
                                              const ShardJournal& journal,
                                              const WritingOrder& order, size_t jobs,
                                              const std::string& what) {
  const bool is_told =
      absl::c_any_of(journal.shards(), [](const Shard& shard) { return !shard.files.empty(); });
  if (!is_told || server::IsReadWhole(local.dataset())) return "";
  return Looking(local, journal, order, what).Go(jobs);
}

}  // namespace feedwater::cli
