// A job: what its ranks have in common. Its configuration is constant; what changes belongs to the
// scheduler.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/batch/slot_layout.h"
#include "server/pipeline/cache_choice.h"
#include "server/pipeline/direct_copies.h"
#include "server/pipeline/epoch_orders.h"
#include "server/pipeline/job_config.h"
#include "server/pipeline/job_files.h"
#include "server/pipeline/job_pace.h"
#include "server/pipeline/job_stats.h"
#include "server/pipeline/read_ahead.h"
#include "server/pipeline/sample_rooms.h"
#include "server/pipeline/usage.h"
#include "server/sampler/order.h"

namespace feedwater::server {

// A place in a job's sequence of steps: step `step` of `order`, or the first of the next epoch that
// has one.
struct OrderCursor {
  std::shared_ptr<const EpochOrder> order;
  int64_t step = 0;
};

// The first step at or after (epoch, position). REQUIRES: a whole epoch has at least one step.
OrderCursor MakeCursor(const std::shared_ptr<const OrderConfig>& config, uint64_t epoch,
                       int64_t position);

class Stream;  // one rank of a job (stream.h)
struct Publication;

class Job {
 public:
  // `claim`: on memory for its samples; null: there is enough. `orders`: for those that its ranks
  // share. `ahead`: null: nothing is read ahead.
  Job(JobConfig config, std::shared_ptr<const OrderConfig> order_config, SlotLayout layout,
      std::shared_ptr<JobFiles> files, std::shared_ptr<const SampleRooms::Claim> claim,
      MemoryReservation orders = {}, std::shared_ptr<ReadAhead> ahead = nullptr)
      : config_(std::move(config)),
        order_config_(std::move(order_config)),
        layout_(std::move(layout)),
        files_(std::move(files)),
        claim_(std::move(claim)),
        orders_(std::move(orders)),
        ahead_(std::move(ahead)),
        direct_(FindDirect()),
        reads_in_place_(config_.pipeline != nullptr && plan() != nullptr &&
                        dataset().giver() != nullptr && !config_.isolated &&
                        plan()->OnlyCopies().has_value() && !HasImages(dataset())) {}
  ~Job() {
    if (ahead_ != nullptr) ahead_->End();
  }

  const JobConfig& config() const { return config_; }
  const Dataset& dataset() const { return *config_.pipeline->dataset; }
  const Plan* plan() const { return config_.pipeline->plan.get(); }
  RecordCache* cache() const { return config_.pipeline->cache.get(); }  // may be null
  const std::shared_ptr<const OrderConfig>& order_config() const { return order_config_; }
  const SlotLayout& layout() const { return layout_; }    // of every rank's slots
  JobFiles* files() const { return files_.get(); }        // null only where nothing is read
  ReadAhead* ahead() const { return ahead_.get(); }       // may be null
  DirectCopies* direct() const { return direct_.get(); }  // may be null
  // Whether records of a user's program may be read where the program can still write to them: they
  // are copied once, and nothing looks into them.
  bool reads_in_place() const { return reads_in_place_; }
  // Its samples wait for a user's program. How long that takes is not known: the job is slow.
  bool calls_out() const {
    return config_.pipeline != nullptr && config_.pipeline->op_caller != nullptr;
  }
  int attached() const { return attached_.load(std::memory_order_relaxed); }  // ranks, here
  // The workers that have memory for its samples: those with lower numbers; and how much each has.
  int workers() const { return claim_ == nullptr ? INT_MAX : claim_->workers(); }
  int64_t claimed_bytes() const { return claim_ == nullptr ? INT64_MAX : claim_->bytes(); }
  int64_t global_batch_size() const { return config_.batch_size * config_.world_size; }

  // No rank is attached any more, and none will be.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  // Storage holds up reads of it: it gets no tickets until they have come.
  bool held_up() const { return held_up_.load(std::memory_order_relaxed) > 0; }

  // The number of an order's step, counted from the epoch's first position: where a cursor resumes
  // at a position that is no multiple of the global batch size, the step it stands in counts as
  // done.
  int64_t StepNumber(const OrderCursor& at) const {
    return at.order->start() / global_batch_size() + at.step;
  }

 private:
  friend class Scheduler;
  friend JobStats Describe(const Job& job);
  friend std::optional<Publication> TakeDone(Stream& stream, bool our_turn);

  std::unique_ptr<DirectCopies> FindDirect() const {
    if (config_.pipeline == nullptr || plan() == nullptr || files_ == nullptr || config_.isolated)
      return nullptr;
    const bool keeps_bytes = config_.pipeline->cache_kind == CacheKind::kBytes;
    if (cache() != nullptr && !keeps_bytes) return nullptr;
    return DirectCopies::For(dataset(), *plan(),
                             cache() == nullptr ? nullptr : &config_.pipeline->kept);
  }

  const JobConfig config_;
  const std::shared_ptr<const OrderConfig> order_config_;
  const SlotLayout layout_;
  const std::shared_ptr<JobFiles> files_;
  const std::shared_ptr<const SampleRooms::Claim> claim_;
  const MemoryReservation orders_;
  const std::shared_ptr<ReadAhead> ahead_;
  const std::unique_ptr<DirectCopies> direct_;
  const bool reads_in_place_;
  std::atomic<int> attached_{0};
  std::atomic<bool> ended_{false};
  std::atomic<int> held_up_{0};

  // Guarded by the scheduler's lock: reached through Scheduler::Guarded, and by these two friends.
  struct Guarded {
    std::vector<std::shared_ptr<Stream>> streams;  // sorted by rank
    double used_ns = 0;  // of CPU time, for FairShares; estimates of running tickets included
    JobPace pace;
    EpochOrders next_orders;
    Usage usage;
    PublishedCounts published;
  } guarded_;
};

}  // namespace feedwater::server
