// The scheduler alone, with the test as its workers: no threads, no reads, no bytes. What is taken
// is completed in whatever order a test likes, so every interleaving that matters can be had
// without luck.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/pipeline/scheduler.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/plain_slot_pool.h"

namespace feedwater::server {

using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::PlainSlotPool;

struct JobShape {
  std::string name = "run1";
  int64_t records = 100, batch_size = 4, world_size = 1;
  uint64_t seed = 7;
  LastBatch last = LastBatch::kDrop;
  uint32_t uid = 0;
  Shuffle shuffle = Shuffle::kFull;
};

class SchedulerTest : public ::testing::Test {
 protected:
  explicit SchedulerTest(int64_t reads_per_uid = 0, int workers = 0)
      : scheduler_(parking_, reads_per_uid, nullptr, workers) {}

  struct Rank {
    std::shared_ptr<Stream> stream;
    std::shared_ptr<PlainSlotPool> slots;
  };

  SlotLayout Layout(const JobShape& shape) {
    const FieldSpec field{"data", TensorSpec{DType::kUInt8, server::Layout::kPlain, {16}}, ""};
    return *SlotLayout::Create({field}, shape.batch_size, 1 << 20);
  }

  Scheduler::NewRank NewRank(const JobShape& shape, int64_t rank, int slots, uint64_t epoch = 0,
                             int64_t position = 0) {
    auto& pipeline = pipelines_[shape.records];
    if (pipeline == nullptr) {
      pipeline = std::make_shared<LoadedPipeline>();
      pipeline->spec.name = "fake";
      pipeline->spec.digest = "0123";
      pipeline->dataset =
          std::make_shared<FakeDataset>(FakeDataset::Options{.records = shape.records});
    }
    OrderConfig order;
    order.records = shape.records;
    order.batch_size = shape.batch_size;
    order.world_size = shape.world_size;
    order.seed = shape.seed;
    order.shuffle = shape.shuffle;
    order.block_records = 3;
    order.last = shape.last;
    Scheduler::NewRank added;
    added.job.name = shape.name;
    added.job.pipeline = pipeline;
    added.job.batch_size = shape.batch_size;
    added.job.world_size = shape.world_size;
    added.job.seed = shape.seed;
    added.job.owner_uid = shape.uid;
    added.order_config = std::make_shared<const OrderConfig>(order);
    added.rank = rank;
    added.pid = 1000 + static_cast<int>(rank);
    added.start = MakeCursor(added.order_config, epoch, position);
    added.layout = Layout(shape);
    added.slots = std::make_shared<PlainSlotPool>(slots, added.layout.slot_bytes);
    return added;
  }

  Rank Attach(const JobShape& shape, int64_t rank, int slots, uint64_t epoch = 0,
              int64_t position = 0) {
    Scheduler::NewRank added = NewRank(shape, rank, slots, epoch, position);
    auto pool = std::static_pointer_cast<PlainSlotPool>(added.slots);
    auto stream = scheduler_.Attach(std::move(added));
    EXPECT_TRUE(stream.ok()) << stream.status();
    return {*stream, pool};
  }

  void Complete(const Ticket& ticket, int64_t cpu_ns_per_sample = 1'000'000,
                TicketResult result = {}) {
    Usage usage;
    usage.samples = ticket.count;
    usage.cpu_ns = ticket.count * cpu_ns_per_sample;
    if (scheduler_.Complete(ticket, result, usage))
      scheduler_.Finish(ticket.batch, absl::OkStatus());
  }

  static std::tuple<uint64_t, int64_t, int64_t, int64_t> Place(const Ticket& ticket) {
    return {ticket.batch->meta().epoch, ticket.batch->meta().step, ticket.batch->stream().rank(),
            ticket.first};
  }

  std::map<int64_t, std::shared_ptr<LoadedPipeline>> pipelines_;
  std::shared_ptr<Parking> parking_ = std::make_shared<Parking>();
  Scheduler scheduler_;
};

class FourWorkers : public SchedulerTest {
 protected:
  FourWorkers() : SchedulerTest(0, 4) {}

  // Takes a ticket for each worker that gets one, from the last to the first.
  std::vector<Ticket> TakeAll() {
    std::vector<Ticket> taken;
    for (int worker = 3; worker >= 0; --worker) {
      if (auto ticket = scheduler_.Take(worker)) taken.push_back(*std::move(ticket));
    }
    return taken;
  }
  static size_t OfUser(const std::vector<Ticket>& tickets, uint32_t uid) {
    return std::count_if(tickets.begin(), tickets.end(), [uid](const Ticket& ticket) {
      return ticket.batch->job().config().owner_uid == uid;
    });
  }
};

}  // namespace feedwater::server
