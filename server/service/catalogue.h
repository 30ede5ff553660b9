// The pipelines that the daemon knows: files of the configured folders (pipeline_files.h), and the
// texts that clients send.
//
// Opening a pipeline's dataset is slow (it may build an index), so it happens once however many
// ranks of a user ask at the same time, and what was opened stays open for a minute after its last
// user. Pipelines over the same `dataset:` map share the opened dataset.
//
// Thread-safe. Load* block until the dataset is open; a caller who is cancelled leaves at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/key.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/user_shares.h"
#include "server/cache/cache.h"
#include "server/pipeline/loaded_pipeline.h"
#include "server/provider/providers.h"
#include "server/service/pipeline_files.h"
#include "server/service/shared_loads.h"
#include "server/source/staging.h"
#include "server/storage/roots.h"

namespace feedwater::server {

// 32 hex digits under which caches know the dataset.
absl::StatusOr<std::string> CacheName(const PipelineSpec& spec, const Dataset& dataset);

class Catalogue {
 public:
  struct Options {
    std::string state_dir;
    std::shared_ptr<UserShares> shares;  // of memory; may be null
    size_t max_text_bytes = 256 * 1024;
    PipelineCaps caps = {};
    std::shared_ptr<Cache> cache;                    // may be null
    std::shared_ptr<StagingArea> staging = nullptr;  // null: what is compressed is refused
    std::shared_ptr<Providers> providers = nullptr;  // of users' own sources and ops; may be null
    int64_t retry_for_ns = 0;  // opening a dataset, after an error that can pass
    // Told the CPU time of threads that open something for a user, but for those that list folders:
    // they step back. May be null.
    std::function<void(uid_t user, int64_t cpu_ns)> charge = nullptr;
    // So long after its opening, a pipeline whose cache has lost its disk is opened anew.
    int64_t disk_retry_ns = 10'000'000'000;
  };
  explicit Catalogue(Options options);

  // Reads the folders. Running jobs keep what they have; the next open sees the new files, roots
  // and datasets.
  void Reload(const PipelineFolders& where, std::shared_ptr<const Roots> roots)
      ABSL_LOCKS_EXCLUDED(mu_);
  // How often it has been: what is opened from now on has this number, or a later one's.
  uint64_t reload() const { return files_.reloaded().number; }
  PipelineFiles& files() { return files_; }
  // As Roots::Silent.
  std::vector<std::string> SilentRoots() const { return files_.reloaded().roots->Silent(); }

  using Loaded = absl::StatusOr<std::shared_ptr<const LoadedPipeline>>;
  // `user` pays: for each user a few pipelines are opened at a time, and a few of those that it
  // sent as texts stay open.
  Loaded LoadNamed(uid_t user, const std::string& name, const Cancelled& cancelled)
      ABSL_LOCKS_EXCLUDED(mu_);
  Loaded LoadText(uid_t user, const std::string& file_name, const std::string& yaml,
                  const Cancelled& cancelled) ABSL_LOCKS_EXCLUDED(mu_);

  // Lets go of pipelines that nobody has used for `idle_seconds`. Called now and then.
  void DropIdle(double idle_seconds) ABSL_LOCKS_EXCLUDED(mu_);
  // Where memory has been refused to the user: lets go of what nobody uses, the user's own first,
  // until there is room; nobody else's where the user's share is what is short. `all`: of all that,
  // since memory is taken in pieces, and the one that was refused says little of those to come.
  // What else is short is tried once more without the user's own. False: that would be of no help.
  bool MakeRoomFor(uid_t user, const absl::Status& refusal, bool all = false)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Does the work, which gave `result`, again as long as it is refused memory and room can be made.
  template <typename Result, typename Work>
  void RetryWithRoom(uid_t user, Work work, Result* result) {
    for (const bool all : {false, true})
      if (MakeRoomFor(user, result->status(), all)) *result = work();
  }

 private:
  struct Lingering {
    std::shared_ptr<const LoadedPipeline> pipeline;
    int64_t last_used_ns = 0;
    uid_t user = 0;
    int64_t opened_ns = 0;
  };

  // `text`: what the pipeline's text takes, when a client sent it. The pipeline gets it.
  Loaded Open(uid_t user, const PipelineSpec& spec, MemoryReservation text, uint64_t reload,
              const std::shared_ptr<const Roots>& roots, const Cancelled& given_up,
              const std::shared_ptr<const PipelineFile>& file = nullptr) ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<MemoryBudget> ShareOf(uid_t user) const;
  // What ops keep counts once it is made, up to kMostTableBytes: a user's pipelines one at a time.
  std::shared_ptr<Mutex> MakingOpsOf(uid_t user) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets go of one cache that nobody uses, or of the pipeline that is longest unused; with `only`,
  // of that user's. False: there is none.
  bool DropOne(std::optional<uid_t> only) {
    return CloseCache(only, /*on_disk=*/false) || DropPipeline(only);
  }
  bool CloseCache(std::optional<uid_t> only, bool on_disk);  // see Cache::CloseIdle
  bool DropPipeline(std::optional<uid_t> only) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets go of pipelines that nobody uses and whose cache has lost its disk: whoever opens one of
  // them now has the disk tried again (Cache::Get), which takes a cache that nobody else has.
  void DropWithoutDisk() ABSL_LOCKS_EXCLUDED(mu_);
  // Reads the files of its ops, which `unread` is without.
  Loaded OpenOnce(uid_t user, const PipelineSpec& unread, MemoryReservation* text, uint64_t reload,
                  const std::shared_ptr<const Roots>& roots, const Cancelled& given_up,
                  const std::shared_ptr<const PipelineFile>& file) ABSL_LOCKS_EXCLUDED(mu_);
  // Of a pipeline with a source or ops of the user's own.
  absl::Status JoinProviders(uid_t user, LoadedPipeline* pipeline) const;
  absl::Status OpenCache(uid_t user, LoadedPipeline* pipeline) const;
  absl::StatusOr<std::shared_ptr<const Dataset>> OpenShared(
      uid_t user, const PipelineSpec& spec, uint64_t reload,
      const std::shared_ptr<const Roots>& roots, const Cancelled& given_up);

  const Options options_;
  PipelineFiles files_;
  mutable Mutex mu_;
  std::vector<Lingering> lingering_ ABSL_GUARDED_BY(mu_);
  std::map<uid_t, std::weak_ptr<Mutex>> making_ops_ ABSL_GUARDED_BY(mu_);
  // Last, so that their threads end before anything they use.
  SharedLoads<Dataset> datasets_;
  SharedLoads<LoadedPipeline> pipelines_;
};

}  // namespace feedwater::server
