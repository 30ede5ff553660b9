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
#include <optional>
#include <string>
#include <vector>

#include "server/base/counters.h"
#include "server/base/room_maker.h"
#include "server/base/user_shares.h"
#include "server/batch/slot_layout.h"
#include "server/batch/slot_pool.h"
#include "server/pipeline/bad_sample_log.h"
#include "server/pipeline/breadcrumbs.h"
#include "server/pipeline/job_config.h"
#include "server/pipeline/job_stats.h"
#include "server/storage/engine.h"

namespace feedwater::server {

class DecoderHost;  // decoder/isolated_maker.h

struct RuntimeOptions {
  std::vector<int> cpus;  // one pinned worker each
  bool pin = true;
  EngineChoice engine;
  bool direct_io = false;
  std::optional<StorageKind> storage_kind;  // that roots are taken to lie on; nothing: what they do
  size_t max_open_files = 1024;
  int64_t retry_for_ns = 10'000'000'000;           // reads that failed for a reason that can pass
  int64_t reads_per_uid = 0;                       // samples of one user on their way; 0: no limit
  int numa_node = -1;                              // -1: not bound
  std::shared_ptr<UserShares> shares;              // of memory; may be null
  RoomMaker make_room;                             // for large images and records; may be null
  std::shared_ptr<BadSampleLog> bad_samples;       // may be null
  std::shared_ptr<const Breadcrumbs> breadcrumbs;  // one crumb a worker; may be null
  std::shared_ptr<DecoderHost> decoders;           // for isolated jobs; null: there are none
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

  // Whether users beside the daemon's own may have jobs: nobody's hold all workers then.
  void AdmitOthers(bool admits_others);
  // CPU time that was used for a user elsewhere: its jobs get so much less of the workers.
  void ChargeUser(uint32_t uid, int64_t cpu_ns);

  std::vector<JobStats> Snapshot() const;
  Counters counters() const;  // of reads
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
