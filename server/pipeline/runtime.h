// The running jobs of a daemon: its worker threads and the streams they fill.
//
// A worker takes a ticket (job, step, rank, places in the batch), starts its reads, and runs each
// sample to completion when its bytes have arrived. Tickets of a job come in the order (step,
// rank); jobs share the workers by CPU time. No free slot, no ticket: with every stream's slots
// full, or no stream at all, the workers sleep.
//
// Thread safety: all calls may come from any thread. Attach, Detach, Seek and Snapshot never wait
// for a decode.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/base/memory_budget.h"
#include "server/base/user_shares.h"
#include "server/batch/slot_layout.h"
#include "server/batch/slot_pool.h"
#include "server/cache/record_cache.h"
#include "server/cache/seek_index_store.h"
#include "server/graph/plan.h"
#include "server/pipeline/bad_sample_log.h"
#include "server/pipeline/breadcrumbs.h"
#include "server/pipeline/job_files.h"
#include "server/sampler/order.h"
#include "server/source/dataset.h"
#include "server/storage/engine.h"

namespace feedwater::server {

class DecoderHost;  // decoder/isolated_maker.h

// A pipeline with its dataset opened and its graph planned. Shared by all jobs that run it.
struct LoadedPipeline {
  PipelineSpec spec;
  std::shared_ptr<const MemoryReservation> text;  // for one that a client sent; else null
  std::shared_ptr<const void> file;  // what it was read from, another one after a change, or null
  std::string warning;               // for those who open it; "" is none
  std::shared_ptr<const Dataset> dataset;
  int64_t class_names_bytes = 0;  // in an answer
  std::shared_ptr<const Plan> plan;
  // What is kept of the records, and why so (cache_choice.h). Null: nothing.
  std::shared_ptr<RecordCache> cache;
  CacheKind cache_kind = CacheKind::kNone;
  std::string cache_reason;
  // Of the JPEGs that are decoded from their files. Null: none are kept.
  std::shared_ptr<SeekIndexStore> seek_indexes;
};

// What a sample takes while it is made, the cache's part included.
const SampleMemory& MemoryOfSamples(const LoadedPipeline& pipeline);

struct JobConfig {
  std::string name;  // what status shows
  std::shared_ptr<const LoadedPipeline> pipeline;
  int64_t batch_size = 0;  // per rank
  int64_t world_size = 1;
  uint64_t seed = 0;
  uint32_t owner_uid = 0;
  bool isolated = false;  // samples are made in decoder processes, which the runtime then has
  FilesMark files;        // of a rank that lost its daemon
};

struct RuntimeOptions {
  std::vector<int> cpus;  // one pinned worker each
  bool pin = true;
  EngineChoice engine;
  bool direct_io = false;
  size_t max_open_files = 1024;
  int64_t retry_for_ns = 10'000'000'000;           // reads that failed for a reason that can pass
  int64_t reads_per_uid = 0;                       // samples of one user on their way; 0: no limit
  int numa_node = -1;                              // -1: not bound
  std::shared_ptr<UserShares> shares;              // of memory; may be null
  std::shared_ptr<BadSampleLog> bad_samples;       // may be null
  std::shared_ptr<const Breadcrumbs> breadcrumbs;  // one crumb a worker; may be null
  std::shared_ptr<DecoderHost> decoders;           // for isolated jobs; null: there are none
};

struct RankStats {
  int64_t rank = 0;
  int pid = 0;
  uint64_t epoch = 0;
  int64_t step =
      0;  // last published; before the first one, the step before the start (-1 at position 0)
  uint64_t began_epoch = 0;  // of the first one, or of the last seek
  int64_t began_step = 0;    // before that one
  // Filled by the service, which knows what the client has taken and released; so are then `epoch`
  // and `step` of the last batch that was taken.
  int slots = 0, slots_ready = 0, slots_lent = 0;
};

struct JobStats {
  std::string job, pipeline;
  uint32_t owner_uid = 0;
  int64_t held_up = 0;  // reads that storage holds up
  uint64_t epoch = 0;   // the least advanced rank's
  int64_t step = 0;
  int64_t world_size = 0;
  // bad_samples: places whose own record was bad. substituted: of them with something else in its
  // place; skipped: of those not real.
  uint64_t samples = 0, bad_samples = 0, substituted = 0, skipped = 0, batches = 0, bytes_read = 0;
  double cpu_seconds = 0, read_wait_seconds = 0;
  // Elapsed time of all workers by stage, beside read_wait_seconds: opening files and starting
  // reads (with the pread engine, reading), splitting bytes into fields, the graph, the batch's
  // graph. Samples that were thrown away count too.
  double read_seconds = 0, parse_seconds = 0, run_seconds = 0, batch_seconds = 0;
  DecodeCounts decoded;
  int workers = 0;  // that have memory for its samples; more than there are: all
  std::string cache_kind, cache_reason;
  int64_t records = 0;  // of the dataset
  RecordCache::Counts cache;
  SeekIndexStore::Counts seek_indexes;
  std::vector<RankStats> ranks;
  // What the job's order is made of: for the ledger.
  std::shared_ptr<const LoadedPipeline> loaded;
  std::shared_ptr<const OrderConfig> order;
  // Where the least advanced rank began, or was sent last. Epochs after that one begin at 0.
  uint64_t start_epoch = 0;
  int64_t start = 0;
};

class Stream;                                 // one rank of a job; opaque to callers
FilesMark MarkOfFiles(const Stream& stream);  // for its rank, in case that it loses its daemon

class Runtime {
 public:
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const RuntimeOptions& options);
  ~Runtime();  // stops and joins the workers

  // Adds a rank, making the job (keyed by owner, name and pipeline name) when it is the first;
  // production starts at once at (epoch, position). FailedPrecondition naming the field when world
  // size, batch size, seed or pipeline digest differ from the job's; AlreadyExists when the rank is
  // attached; InvalidArgument when rank is not in [0, world size).
  absl::StatusOr<std::shared_ptr<Stream>> Attach(const JobConfig& job, int64_t rank, int pid,
                                                 uint64_t epoch, int64_t position,
                                                 const SlotLayout& layout,
                                                 std::shared_ptr<SlotPool> slots);
  // Stops production for it and forgets it; the job ends with its last rank. Slots being filled are
  // abandoned when their workers reach them; the caller need not wait.
  void Detach(const std::shared_ptr<Stream>& stream);
  // Starts over at (epoch, position); batches from now on carry `serial`. Unpublished work is
  // dropped.
  absl::Status Seek(const std::shared_ptr<Stream>& stream, uint32_t serial, uint64_t epoch,
                    int64_t position);

  // CPU time that was used for a user elsewhere: its jobs get so much less of the workers.
  void ChargeUser(uint32_t uid, int64_t cpu_ns);

  std::vector<JobStats> Snapshot() const;
  void UseRoom();  // jobs that memory kept to some workers get others; called now and then
  int workers() const;
  int active_workers() const;  // not parked
  uint64_t progress() const;   // grows while work is done; for the watchdog

 private:
  Runtime();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedwater::server
