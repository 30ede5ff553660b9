// A stream is one rank's sequence of batches; a batch is open from the moment it has its slot until
// it is published. What is constant in them may be read by any thread; what changes belongs to the
// scheduler, and its lock guards it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/base/memory_budget.h"
#include "server/batch/slot_layout.h"
#include "server/batch/slot_pool.h"
#include "server/graph/plan.h"
#include "server/pipeline/bad_sample.h"
#include "server/pipeline/job.h"

namespace feedwater::server {

// Memory that only batch ops read, `slots` times `bytes_per_slot`.
struct Staging {
  std::unique_ptr<std::byte[]> data;
  int64_t bytes_per_slot = 0;
  MemoryReservation reservation;
  MemoryReservation bad_places;  // for all slots
  MemoryReservation orders;      // the rank's own: where it began, and where a seek sends it
};

class Batch;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<Job> job, int64_t rank, int pid, SlotLayout layout,
         std::shared_ptr<SlotPool> slots, Staging staging)
      : job_(std::move(job)),
        rank_(rank),
        pid_(pid),
        layout_(std::move(layout)),
        slots_(std::move(slots)),
        staging_(std::move(staging)) {}

  Job& job() const { return *job_; }
  const std::shared_ptr<Job>& shared_job() const { return job_; }
  int64_t rank() const { return rank_; }
  int pid() const { return pid_; }
  SlotPool& slots() const { return *slots_; }
  BatchMemory MemoryOf(int slot) const;

  // False when the last Acquire found no slot and none has become free since. Set by the slot
  // pool's callback, without the scheduler's lock.
  std::atomic<bool> may_have_slot{false};

 private:
  friend class Scheduler;
  friend class DroppedBatches;
  friend JobStats Describe(const Job& job);
  friend std::optional<Publication> TakeDone(Stream& stream, bool our_turn);

  const std::shared_ptr<Job> job_;
  const int64_t rank_;
  const int pid_;
  const SlotLayout layout_;
  const std::shared_ptr<SlotPool> slots_;
  const Staging staging_;

  // Guarded by the scheduler's lock, as in Job.
  struct Guarded {
    bool attached = true;
    bool producing = true;    // false after a failure, until Seek
    bool publishing = false;  // some worker is handing over a batch: the turn that keeps the order
    uint32_t serial = 0;
    uint64_t began_epoch = 0;  // where production began, or was sent by the last seek
    int64_t began_at = 0, began_step = 0;
    OrderCursor next;                // of the batch that is opened next
    std::shared_ptr<Batch> filling;  // the last of `open` while it has places without a ticket
    std::deque<std::shared_ptr<Batch>> open;  // in the order of publishing
    bool makes_order = false;                 // a worker does, without the lock
    uint64_t published_epoch = 0;
    int64_t published_step = -1;
    BadSampleCount bad;
  } guarded_;
};

class Batch {
 public:
  Batch(std::shared_ptr<Stream> stream, OrderCursor at, const BatchMeta& meta, int slot);

  const Stream& stream() const { return *stream_; }
  const std::shared_ptr<Stream>& shared_stream() const { return stream_; }
  Job& job() const { return stream_->job(); }
  const EpochOrder& order() const { return *at_.order; }
  const std::shared_ptr<const EpochOrder>& shared_order() const { return at_.order; }
  int64_t step() const { return at_.step; }  // of order()
  const BatchMeta& meta() const {
    return meta_;
  }  // without the counts of real and substituted samples
  int64_t samples() const { return meta_.samples; }
  int slot() const { return slot_; }
  const BatchMemory& memory() const { return memory_; }
  uint64_t number() const;  // among the batches of all ranks, for the draws of batch ops

  // Nobody will see this batch: what is still to do on it need not be done.
  bool dropped() const { return dropped_.load(std::memory_order_relaxed); }
  const std::atomic<bool>& dropped_flag() const { return dropped_; }

 private:
  friend class Scheduler;
  friend class DroppedBatches;
  friend std::optional<Publication> TakeDone(Stream& stream, bool our_turn);

  const std::shared_ptr<Stream> stream_;
  const OrderCursor at_;
  const BatchMeta meta_;
  const int slot_;
  const BatchMemory memory_;
  std::atomic<bool> dropped_{false};

  // Guarded by the scheduler's lock, as in Job.
  struct Guarded {
    int64_t next_place = 0;  // the first without a ticket
    int writers = 0;         // tickets being worked on; batch ops count as one
    int slow_worker = -1;    // that runs the batch ops of a slow job
    bool done = false;
    int64_t real = 0;
    BadPlaces bad;
    bool failed = false;
    int64_t failed_place = -1;  // the lowest one, so that the failure told is the same on every run
    BatchFailure failure;
  } guarded_;
};

// Consecutive places of one batch, for one worker to fill.
struct Ticket {
  std::shared_ptr<Batch> batch;
  int64_t first = 0, count = 0;
  double estimate_ns = 0;       // CPU time charged in advance
  bool first_of_epoch = false;  // its worker makes the next epoch's order meanwhile
  int worker = 0;
  bool is_slow = false;  // of a job that is slow, or new (worker_shares.h)
};

// What became of a ticket.
struct TicketResult {
  int64_t real = 0;
  std::vector<BadSample> bad = {};
  int64_t failed_place = -1;  // -1: none; the lowest one
  BatchFailure failure = {};
};

}  // namespace feedwater::server
