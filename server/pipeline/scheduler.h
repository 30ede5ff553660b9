// Who works on what next. The scheduler hands out tickets, takes back what became of them, and
// publishes finished batches in order. It knows nothing of reads, bytes or ops, and never waits for
// any of them.
//
// Between users, and between a user's jobs: who has used the least CPU time (fair_shares.h). A
// ticket is charged with an estimate when it is taken and with the truth when it is done. Within a
// job: the batch with the least (epoch, step, rank) whose rank has a slot for it or has it open
// already. Within a stream: batches are opened, and published, one after the other.
//
// Thread safety: all calls may come from any thread. The lock is held for moments: batches are
// published and slots given up outside of it. Order of locks: this one, then a SlotPool's, then
// Parking's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/pipeline/bad_sample_log.h"
#include "server/pipeline/dropped_batches.h"
#include "server/pipeline/fair_shares.h"
#include "server/pipeline/job_stats.h"
#include "server/pipeline/parking.h"
#include "server/pipeline/stream.h"
#include "server/pipeline/user_reads.h"
#include "server/pipeline/worker_shares.h"

namespace feedwater::server {

class Scheduler {
 public:
  // What a rank brings along when it attaches.
  struct NewRank {
    JobConfig job;
    std::shared_ptr<const OrderConfig> order_config;
    int64_t rank = 0;
    int pid = 0;
    OrderCursor start;
    SlotLayout layout;
    std::shared_ptr<SlotPool> slots;
    Staging staging;
    std::shared_ptr<JobFiles> files;                  // for the job, when this rank is its first
    std::shared_ptr<const SampleRooms::Claim> claim;  // the job's; may be null
    // Memory for the orders that a job's ranks share: asked for when this rank is its first.
    std::function<absl::StatusOr<MemoryReservation>()> reserve_orders;
    std::shared_ptr<ReadAhead> ahead;  // the job's; null: nothing is read ahead
  };

  // `reads_per_uid`: see UserReads. `bad_samples` may be null. `workers`: how many there are; 0: no
  // user's share is bounded.
  explicit Scheduler(std::shared_ptr<Parking> parking, int64_t reads_per_uid = 0,
                     std::shared_ptr<BadSampleLog> bad_samples = nullptr, int workers = 0)
      : parking_(std::move(parking)),
        bad_samples_(std::move(bad_samples)),
        reads_(reads_per_uid),
        shares_(workers) {}
  ~Scheduler() { Stop(); }

  absl::StatusOr<std::shared_ptr<Stream>> Attach(NewRank rank);
  void Detach(const std::shared_ptr<Stream>& stream);
  absl::Status Seek(const std::shared_ptr<Stream>& stream, uint32_t serial, OrderCursor start);
  void Stop();  // detaches everybody; no ticket is handed out any more

  // Whether users beside the daemon's own may have jobs (worker_shares.h).
  void AdmitOthers(bool admits_others) ABSL_LOCKS_EXCLUDED(mu_);

  // The next ticket for this worker, or nothing: then none will come before Parking's generation
  // moves on. A ticket may have no places (a rank's share of a remainder can be empty). Every
  // ticket taken must be given to Complete. `only_user`: nothing, where it is another user's turn.
  // `charged_ns`: more by the CPU time that went into orders of epochs, charged to their jobs.
  std::optional<Ticket> Take(int worker = 0, std::optional<uint32_t> only_user = std::nullopt,
                             int64_t* charged_ns = nullptr);
  // True when the batch has all its places: the caller runs the batch ops and calls Finish.
  bool Complete(const Ticket& ticket, const TicketResult& result, const Usage& usage);
  void Finish(const std::shared_ptr<Batch>& batch, const absl::Status& status);
  void Charge(Job& job, const Usage& usage);
  // CPU time that was used for a user elsewhere, such as by its control calls: its jobs, if it has
  // any, get so much less of the workers.
  void ChargeUser(uint32_t uid, int64_t cpu_ns);
  // So many reads more, or less, of the job are held up by storage.
  void HeldUp(Job& job, int change);
  // So many samples of it more, or less, are suspended on the worker (turns.h).
  void Suspended(Job& job, int worker, int change) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the worker could take a ticket of another user than this one.
  bool HasOthersWork(int worker, uint32_t uid) const ABSL_LOCKS_EXCLUDED(mu_);
  void Beat() { progress_.fetch_add(1, std::memory_order_relaxed); }  // a worker is not stuck
  // The order of a whole epoch, kept for the ranks that come to it. Made without the lock; null
  // while another worker makes it.
  std::shared_ptr<const EpochOrder> PrepareEpoch(Job& job, uint64_t epoch) ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<JobStats> Snapshot() const;
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  // The only way to what changes in a job, stream or batch, so that the analysis sees every access.
  template <typename T>
  auto& Guarded(T& object) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return object.guarded_;
  }

  std::shared_ptr<Job> FindJob(const JobConfig& config) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Job> RunningJob(const JobConfig& config) const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether this worker, or WorkerShares::kAnyWorker, may work for the job now.
  bool MayWork(const Job& job, int worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginSlow(Job& job, int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndSlow(Job& job, int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The stream of the job whose batch is next, or null when none can go on.
  Stream* FirstReady(Job& job, int worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Stream* Pick(int worker, std::optional<uint32_t> only_user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool OpenBatch(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Ticket Cut(Stream& stream, int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes somebody who may work on the job.
  void WakeFor(const Job& job) const {
    job.workers() == INT_MAX ? parking_->Wake() : parking_->WakeAll();
  }
  // For the work that is ready.
  enum class Waking { kNobody, kOne, kAll };
  Waking WhomToWake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False when the stream has come to the end of an epoch and the next one's order is not known.
  bool BeginEpoch(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether another worker makes that order, or the one of the place that was sought: until then
  // the stream waits.
  bool AwaitsOrder(const Stream& stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes it, for the job's account; returns the CPU time that it took. REQUIRES: the stream says
  // that its order is being made.
  int64_t MakeOrder(Stream& stream) ABSL_LOCKS_EXCLUDED(mu_);
  void Account(Job& job, const Usage& usage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Use(Job& job, double ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Marks the batch as failed, in place `place` (-1: as a whole). Nothing behind it is worth
  // working on.
  void Fail(const std::shared_ptr<Batch>& batch, int64_t place, const BatchFailure& failure,
            DroppedBatches* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PublishInOrder(const std::shared_ptr<Stream>& stream) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Parking> parking_;
  const std::shared_ptr<BadSampleLog> bad_samples_;
  std::atomic<uint64_t> progress_{0};

  mutable Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);
  UserReads reads_ ABSL_GUARDED_BY(mu_);
  WorkerShares shares_ ABSL_GUARDED_BY(mu_);
  FairShares fair_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
