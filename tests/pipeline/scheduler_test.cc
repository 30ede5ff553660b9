// The scheduler alone, with the test as its workers: no threads, no reads, no bytes. What is taken
// is completed in whatever order a test likes, so every interleaving that matters can be had
// without luck.
#include "server/pipeline/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/testing/fake_dataset.h"
#include "tests/testing/plain_slot_pool.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::PlainSlotPool;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct JobShape {
  std::string name = "run1";
  int64_t records = 100, batch_size = 4, world_size = 1;
  uint64_t seed = 7;
  LastBatch last = LastBatch::kDrop;
  uint32_t uid = 0;
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
    order.shuffle = Shuffle::kFull;
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

class SixReadsPerUser : public SchedulerTest {
 protected:
  SixReadsPerUser() : SchedulerTest(6) {}
};

TEST_F(SchedulerTest, TicketsOfAJobComeInTheOrderOfStepRankAndPlace) {
  const JobShape shape{.world_size = 3};
  std::vector<Rank> ranks;
  for (int64_t rank : {2, 0, 1}) ranks.push_back(Attach(shape, rank, 4));
  std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t>> taken;
  while (auto ticket = scheduler_.Take()) {
    taken.push_back(Place(*ticket));
    Complete(*ticket);
  }
  EXPECT_EQ(taken.size(),
            4u * 3 * 4);  // slots * ranks * places: a costly sample is a ticket of its own
  EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
}

TEST_F(SchedulerTest, ARankWithoutAFreeSlotDoesNotHoldUpTheOthers) {
  const JobShape shape{.world_size = 2};
  Rank slow = Attach(shape, 0, 1), fast = Attach(shape, 1, 3);
  while (auto ticket = scheduler_.Take()) Complete(*ticket);
  EXPECT_EQ(slow.slots->Next()->meta.step, 0);
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(fast.slots->Next()->meta.step, step);
  slow.slots->Release(0);
  auto ticket = scheduler_.Take();
  ASSERT_TRUE(ticket.has_value());
  EXPECT_EQ(Place(*ticket), std::make_tuple(0u, 1, 0, 0));
  Complete(*ticket);
}

TEST_F(SchedulerTest, NoFreeSlotNoTicket) {
  Rank rank = Attach({}, 0, 2);
  int64_t places = 0;
  while (auto ticket = scheduler_.Take()) {
    places += ticket->count;
    Complete(*ticket);
  }
  EXPECT_EQ(places, 2 * 4);
  const uint64_t generation = parking_->generation();
  EXPECT_FALSE(scheduler_.Take().has_value());
  rank.slots->Release(rank.slots->Next()->slot);
  EXPECT_GT(parking_->generation(), generation) << "a slot that becomes free wakes a worker";
  EXPECT_TRUE(scheduler_.Take().has_value());
}

TEST_F(SchedulerTest, BatchesThatAreDoneOutOfOrderAreShownInOrder) {
  Rank rank = Attach({}, 0, 4);
  std::vector<Ticket> tickets;
  while (auto ticket = scheduler_.Take()) tickets.push_back(*ticket);
  std::reverse(tickets.begin(), tickets.end());
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_FALSE(rank.slots->Next(absl::ZeroDuration()).has_value()) << i;
    Complete(tickets[i]);
  }
  for (int64_t step = 0; step < 4; ++step) EXPECT_EQ(rank.slots->Next()->meta.step, step);
  EXPECT_THAT(rank.slots->violations(), IsEmpty());
}

TEST_F(SchedulerTest, EpochsFollowEachOtherWithoutAGap) {
  Rank rank = Attach({.records = 10}, 0, 8);  // two steps an epoch, two records left out
  while (auto ticket = scheduler_.Take()) Complete(*ticket);
  for (int64_t batch = 0; batch < 8; ++batch) {
    const BatchMeta meta = rank.slots->Next()->meta;
    EXPECT_EQ(meta.epoch, static_cast<uint64_t>(batch / 2));
    EXPECT_EQ(meta.step, batch % 2);
    EXPECT_EQ(meta.last_in_epoch, batch % 2 == 1);
    EXPECT_EQ(meta.next_position, 4 * (batch % 2 + 1));
  }
}

TEST_F(SchedulerTest, AStartAtTheEndOfAnEpochIsTheStartOfTheNext) {
  Rank rank = Attach({.records = 10}, 0, 1, /*epoch=*/3, /*position=*/8);
  Complete(*scheduler_.Take());
  const JobStats before = scheduler_.Snapshot()[0];
  EXPECT_EQ(before.ranks[0].epoch, 4u);
  EXPECT_EQ(before.ranks[0].step, -1);
  while (auto ticket = scheduler_.Take()) Complete(*ticket);
  const BatchMeta meta = rank.slots->Next()->meta;
  EXPECT_EQ(meta.epoch, 4u);
  EXPECT_EQ(meta.step, 0);
}

TEST_F(SchedulerTest, StepsCountFromTheEpochsFirstPositionAfterAResume) {
  Rank rank = Attach({}, 0, 1, /*epoch=*/0, /*position=*/22);
  while (auto ticket = scheduler_.Take()) Complete(*ticket);
  const BatchMeta meta = rank.slots->Next()->meta;
  EXPECT_EQ(meta.step, 22 / 4);
  EXPECT_EQ(meta.next_position, 26);
}

TEST_F(SchedulerTest, ABatchWithoutSamplesIsStillShown) {
  // 5 records, 2 ranks, batches of 4: `partial` gives one step of 3 and 2; with 1 record one rank
  // has none.
  const JobShape shape{.records = 1, .world_size = 2, .last = LastBatch::kPartial};
  Rank first = Attach(shape, 0, 2), second = Attach(shape, 1, 2);
  while (auto ticket = scheduler_.Take()) Complete(*ticket, 1000, {.real = ticket->count});
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    const BatchMeta one = first.slots->Next()->meta, none = second.slots->Next()->meta;
    EXPECT_EQ(one.samples + none.samples, 1u);
    EXPECT_EQ(one.epoch, epoch);
    EXPECT_EQ(none.epoch, epoch);
    EXPECT_TRUE(one.last_in_epoch && none.last_in_epoch);
  }
}

TEST_F(SchedulerTest, TheFailureToldIsTheLowestPlacesWhateverCameFirst) {
  for (bool reversed : {false, true}) {
    Rank rank = Attach({}, 0, 3);
    std::vector<Ticket> tickets;
    while (auto ticket = scheduler_.Take()) tickets.push_back(*ticket);
    ASSERT_EQ(tickets.size(), 12u);
    if (reversed) std::reverse(tickets.begin(), tickets.end());
    for (const Ticket& ticket : tickets) {
      TicketResult result;
      const int64_t place = ticket.first, step = ticket.batch->meta().step;
      if (step > 0 && place >= 1) {
        result.failed_place = place;
        result.failure = {absl::DataLossError("bad"), step * 100 + place, "p"};
      }
      Complete(ticket, 1'000'000, result);
    }
    EXPECT_EQ(rank.slots->Next()->meta.step, 0);
    const auto failed = rank.slots->Next();
    EXPECT_EQ(failed->slot, -1);
    EXPECT_EQ(failed->meta.step, 1);
    EXPECT_EQ(failed->failure.record, 101);
    EXPECT_FALSE(rank.slots->Next(absl::ZeroDuration()).has_value()) << "the stream stands still";
    EXPECT_FALSE(scheduler_.Take().has_value());
    EXPECT_EQ(rank.slots->free_slots(), 2) << "the batch before the failure is lent";
    EXPECT_EQ(scheduler_.Snapshot()[0].bad_samples, 1u);

    ASSERT_TRUE(
        scheduler_.Seek(rank.stream, 1, MakeCursor(rank.stream->job().order_config(), 0, 0)).ok());
    EXPECT_TRUE(scheduler_.Take().has_value()) << "Seek makes it go on";
    EXPECT_THAT(rank.slots->violations(), IsEmpty());
    scheduler_.Detach(rank.stream);
  }
}

TEST_F(SchedulerTest, AFailureOfTheBatchsOwnGraphIsTold) {
  Rank rank = Attach({}, 0, 1);
  while (auto ticket = scheduler_.Take()) {
    if (scheduler_.Complete(*ticket, {}, {}))
      scheduler_.Finish(ticket->batch, absl::InternalError("mixup"));
  }
  const auto failed = rank.slots->Next();
  EXPECT_EQ(failed->slot, -1);
  EXPECT_EQ(failed->failure.record, -1);
  EXPECT_EQ(rank.slots->free_slots(), 1);
}

TEST_F(SchedulerTest, SlotsOfACLosedStreamAreGivenUpByTheirLastWriter) {
  Rank rank = Attach({}, 0, 3);
  std::vector<Ticket> tickets;
  while (auto ticket = scheduler_.Take()) tickets.push_back(*ticket);
  for (int i = 0; i < 4; ++i) Complete(tickets[i]);  // batch 0 is lent
  scheduler_.Detach(rank.stream);
  EXPECT_TRUE(scheduler_.Snapshot().empty()) << "the job ends with its last rank";
  EXPECT_EQ(rank.slots->free_slots(), 0);
  for (int i = 4; i < 12; ++i) {
    EXPECT_TRUE(tickets[i].batch->dropped());
    Complete(tickets[i]);
  }
  EXPECT_EQ(rank.slots->free_slots(), 2);
  EXPECT_THAT(rank.slots->violations(), IsEmpty());
  EXPECT_EQ(
      scheduler_.Seek(rank.stream, 1, MakeCursor(rank.stream->job().order_config(), 0, 0)).code(),
      absl::StatusCode::kFailedPrecondition);
}

TEST_F(SchedulerTest, SeekBetweenTheLastPlaceAndTheBatchsGraphDropsTheBatch) {
  Rank rank = Attach({.batch_size = 1}, 0, 1);
  const auto ticket = scheduler_.Take();
  ASSERT_TRUE(scheduler_.Complete(*ticket, {}, {}));
  ASSERT_TRUE(
      scheduler_.Seek(rank.stream, 1, MakeCursor(rank.stream->job().order_config(), 0, 50)).ok());
  EXPECT_FALSE(scheduler_.Take().has_value()) << "the only slot is still being written";
  scheduler_.Finish(ticket->batch, absl::OkStatus());
  while (auto next = scheduler_.Take()) Complete(*next);
  const auto event = rank.slots->Next();
  EXPECT_EQ(event->meta.serial, 1u);
  EXPECT_EQ(event->meta.step, 50);
  EXPECT_FALSE(rank.slots->Next(absl::ZeroDuration()).has_value());
}

TEST_F(SchedulerTest, CheapSamplesComeInLongTicketsAndCostlyOnesAlone) {
  Rank rank = Attach({.records = 10'000, .batch_size = 1000}, 0, 3);
  std::set<int64_t> counts;
  auto first = scheduler_.Take();
  EXPECT_EQ(first->count, 1) << "nothing is known of a new job";
  Complete(*first, 1'000);
  EXPECT_EQ(scheduler_.Take()->count, 64);
  for (int i = 0; i < 60; ++i)
    scheduler_.Charge(rank.stream->job(), {.samples = 10, .cpu_ns = 10'000'000});
  EXPECT_EQ(scheduler_.Take()->count, 1);
}

TEST_F(SchedulerTest, JobsShareByCpuTime) {
  // One job's samples cost 50 times another's.
  struct Load {
    JobShape shape;
    int64_t cost_ns;
    Rank rank;
    int64_t used = 0;
  };
  std::vector<Load> loads = {{{.name = "cheap", .records = 100'000}, 20'000, {}},
                             {{.name = "dear", .records = 100'000}, 1'000'000, {}},
                             {{.name = "usual", .records = 100'000}, 100'000, {}}};
  for (Load& load : loads) load.rank = Attach(load.shape, 0, 4);
  int64_t total = 0;
  std::vector<Ticket> running;  // three workers that always have two tickets
  while (total < 4'000'000'000) {
    while (running.size() < 6) {
      auto ticket = scheduler_.Take();
      ASSERT_TRUE(ticket.has_value());
      running.push_back(*ticket);
    }
    const Ticket ticket = running.front();
    running.erase(running.begin());
    for (Load& load : loads) {
      if (&ticket.batch->job() != &load.rank.stream->job()) continue;
      load.used += ticket.count * load.cost_ns;
      total += ticket.count * load.cost_ns;
      Complete(ticket, load.cost_ns);
      while (auto event = load.rank.slots->Next(absl::ZeroDuration()))
        load.rank.slots->Release(event->slot);
    }
  }
  for (const Load& load : loads)
    EXPECT_NEAR(1.0 * load.used / total, 1.0 / 3, 0.02) << load.shape.name;
}

TEST_F(SchedulerTest, AUserWithManyJobsHasNoMoreThanOneWithOne) {
  const Rank one = Attach({.name = "one", .records = 100'000, .uid = 1}, 0, 4);
  std::vector<Rank> many;
  for (int i = 0; i < 16; ++i) {
    const std::string name = absl::StrCat("many", i);
    many.push_back(Attach({.name = name, .records = 100'000, .uid = 2}, 0, 4));
  }
  std::map<uint32_t, int64_t> used;
  std::map<const Job*, int64_t> of_job;
  for (int i = 0; i < 20'000; ++i) {
    const auto ticket = scheduler_.Take();
    ASSERT_TRUE(ticket.has_value());
    used[ticket->batch->job().config().owner_uid] += ticket->count;
    of_job[&ticket->batch->job()] += ticket->count;
    Complete(*ticket, 1'000'000);
    many.push_back(one);
    for (const Rank& rank : many) {
      while (auto event = rank.slots->Next(absl::ZeroDuration())) rank.slots->Release(event->slot);
    }
    many.pop_back();
  }
  EXPECT_NEAR(1.0 * used[1] / static_cast<double>(used[1] + used[2]), 0.5, 0.02);
  for (const Rank& rank : many) {
    EXPECT_NEAR(
        1.0 * static_cast<double>(of_job[&rank.stream->job()]) / static_cast<double>(used[2]),
        1.0 / 16, 0.01);
  }
}

TEST_F(SchedulerTest, AJobThatComesLaterOrWasIdleDoesNotTakeEverything) {
  Rank old = Attach({.name = "old", .records = 100'000}, 0, 4);
  Rank idle = Attach({.name = "idle", .records = 100'000}, 0, 1);
  int64_t used = 0, news = 0, idles = 0;
  const auto turn = [&](Rank* fresh) {
    const auto ticket = scheduler_.Take();
    ASSERT_TRUE(ticket.has_value());
    Complete(*ticket, 1'000'000);
    used += ticket->count;
    if (fresh != nullptr && &ticket->batch->job() == &fresh->stream->job()) news += ticket->count;
    if (&ticket->batch->job() == &idle.stream->job()) idles += ticket->count;
    while (auto event = old.slots->Next(absl::ZeroDuration())) old.slots->Release(event->slot);
    if (fresh == nullptr) return;
    while (auto event = fresh->slots->Next(absl::ZeroDuration()))
      fresh->slots->Release(event->slot);
    while (auto event = idle.slots->Next(absl::ZeroDuration())) idle.slots->Release(event->slot);
  };
  while (used < 2000) turn(nullptr);  // "idle" fills its only slot and stands still
  EXPECT_EQ(idles, 4);
  Rank fresh = Attach({.name = "fresh", .records = 100'000}, 0, 4);
  used = idles = 0;
  while (used < 300) turn(&fresh);
  EXPECT_NEAR(static_cast<double>(news), 100, 15);
  EXPECT_NEAR(static_cast<double>(idles), 100, 30) << "a little credit is all that idling brings";
}

TEST_F(SchedulerTest, WhatAUserUsesElsewhereItsJobsDoNotGet) {
  Rank one = Attach({.name = "one", .records = 100'000, .uid = 1}, 0, 4);
  Rank other = Attach({.name = "other", .records = 100'000, .uid = 2}, 0, 4);
  int64_t ones = 0, others = 0;
  for (int turn = 0; turn < 400; ++turn) {
    const auto ticket = scheduler_.Take();
    ASSERT_TRUE(ticket.has_value());
    const bool is_one = &ticket->batch->job() == &one.stream->job();
    Complete(*ticket, 1'000'000);
    (is_one ? ones : others) += ticket->count;
    // As much again as its samples take.
    if (is_one) scheduler_.ChargeUser(1, ticket->count * 1'000'000);
    scheduler_.ChargeUser(3, 1'000'000'000);  // has no job
    for (const Rank* rank : {&one, &other}) {
      while (auto event = rank->slots->Next(absl::ZeroDuration()))
        rank->slots->Release(event->slot);
    }
  }
  EXPECT_NEAR(static_cast<double>(others) / static_cast<double>(ones), 2.0, 0.3);
}

TEST_F(FourWorkers, ANewJobHasOneUntilItsFirstSampleIsDone) {
  Rank rank = Attach({.records = 100'000}, 0, 4);
  const uint64_t before = parking_->generation();
  const std::vector<Ticket> first = TakeAll();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].count, 1);
  EXPECT_TRUE(scheduler_.Take(first[0].worker).has_value()) << "the same worker may go on";
  Complete(first[0], 1'000'000);
  EXPECT_GT(parking_->generation(), before) << "the others are woken";
  EXPECT_EQ(TakeAll().size(), 4u);
}

TEST_F(FourWorkers, SlowJobsOfAUserLeaveOthersTheirShare) {
  constexpr int64_t kSlow = WorkerShares::kSlowNs + 1;
  const auto slow_job = [&](const std::string& name) {
    Rank rank = Attach({.name = name, .records = 100'000, .uid = 1}, 0, 4);
    const auto ticket = scheduler_.Take();
    EXPECT_TRUE(ticket.has_value());
    Complete(*ticket, kSlow);
    return rank;
  };
  const Rank a = slow_job("a"), b = slow_job("b");
  std::vector<Ticket> alone = TakeAll();
  EXPECT_EQ(alone.size(), 4u) << "as long as nobody else is there";
  for (const Ticket& ticket : alone) Complete(ticket, kSlow);

  const Rank other = Attach({.name = "other", .records = 100'000, .uid = 2}, 0, 2);
  Complete(*scheduler_.Take(), 100'000);
  // Whatever the other user has slots for: one user of two has half of four, with two jobs too.
  for (int round = 0; round < 5; ++round) {
    std::vector<Ticket> taken = TakeAll();
    while (true) {  // the other's slots fill up, and only then workers are left over
      std::vector<Ticket> more = TakeAll();
      if (OfUser(more, 2) == 0) {
        taken.insert(taken.end(), more.begin(), more.end());
        break;
      }
      taken.insert(taken.end(), more.begin(), more.end());
    }
    std::set<int> busy;
    for (const Ticket& ticket : taken) {
      if (ticket.batch->job().config().owner_uid == 1) busy.insert(ticket.worker);
    }
    EXPECT_LE(busy.size(), 2u);
    EXPECT_GE(busy.size(), 1u);
    for (const Ticket& ticket : taken)
      Complete(ticket, ticket.batch->job().config().owner_uid == 1 ? kSlow : 100'000);
    while (auto event = other.slots->Next(absl::ZeroDuration())) other.slots->Release(event->slot);
    for (const Rank* rank : {&a, &b}) {
      while (auto event = rank->slots->Next(absl::ZeroDuration()))
        rank->slots->Release(event->slot);
    }
  }
}

TEST_F(FourWorkers, AWorkerWithASlowSampleTakesNobodyElsesTickets) {
  const Rank slow = Attach({.name = "slow", .records = 100'000, .uid = 1}, 0, 4);
  Complete(*scheduler_.Take(0), WorkerShares::kSlowNs + 1);
  const Rank other = Attach({.name = "other", .records = 100'000, .uid = 2}, 0, 4);
  EXPECT_FALSE(scheduler_.Take(0, /*only_user=*/1).has_value()) << "it is the other's turn";
  const auto elsewhere = scheduler_.Take(1);
  ASSERT_TRUE(elsewhere.has_value());
  EXPECT_EQ(elsewhere->batch->job().config().owner_uid, 2u);
  Complete(*elsewhere, 2 * WorkerShares::kSlowNs);
  const auto own = scheduler_.Take(0, 1);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->batch->job().config().owner_uid, 1u);
}

TEST_F(FourWorkers, TimeWithoutASampleMakesAJobSlow) {
  const Rank rank = Attach({.name = "a", .records = 100'000, .uid = 1}, 0, 4);
  Ticket first = *scheduler_.Take(0);
  Usage usage;
  usage.cpu_ns = WorkerShares::kSlowNs + 1;  // of a record that another one stands in for
  scheduler_.Charge(first.batch->job(), usage);
  Complete(first, 100'000);
  EXPECT_TRUE(scheduler_.Take(0)->is_slow);
}

TEST_F(FourWorkers, WorkersThatAreKeptWaitingAreUsed) {
  const Rank rank = Attach({.name = "a", .records = 100'000, .uid = 1}, 0, 4);
  Ticket first = *scheduler_.Take(0);
  Usage usage;
  usage.held_ns = WorkerShares::kSlowNs + 1;  // by a decoder process that does not work
  scheduler_.Charge(first.batch->job(), usage);
  Complete(first, 100'000);
  EXPECT_TRUE(scheduler_.Take(0)->is_slow);
}

TEST_F(FourWorkers, BatchOpsOfASlowJobCount) {
  const Rank slow = Attach({.name = "a", .records = 100'000, .batch_size = 1, .uid = 1}, 0, 4);
  const Ticket ticket = *scheduler_.Take(0);
  Usage usage;
  usage.samples = 1;
  usage.cpu_ns = WorkerShares::kSlowNs + 1;
  ASSERT_TRUE(scheduler_.Complete(ticket, {}, usage));
  const Rank other = Attach({.name = "b", .records = 100'000, .batch_size = 1, .uid = 2}, 0, 1);
  ASSERT_EQ(scheduler_.Take(3)->batch->job().config().owner_uid, 2u) << "its only slot";
  EXPECT_TRUE(scheduler_.Take(1).has_value());
  EXPECT_FALSE(scheduler_.Take(2).has_value())
      << "the batch ops hold one of the user's two workers";
  scheduler_.Finish(ticket.batch, absl::OkStatus());
  EXPECT_TRUE(scheduler_.Take(2).has_value());
}

TEST_F(FourWorkers, AJobIsSlowNoMoreOnceItsSamplesAreQuickForLong) {
  const Rank slow = Attach({.name = "a", .records = 100'000, .batch_size = 1000, .uid = 1}, 0, 2);
  const Rank other = Attach({.name = "b", .records = 100'000, .uid = 2}, 0, 1);
  for (int64_t done = 0; done < WorkerShares::kSlowSamples + 1000;) {
    const auto ticket = scheduler_.Take();
    ASSERT_TRUE(ticket.has_value());
    const bool is_first = done == 0 && ticket->batch->job().config().owner_uid == 1;
    if (ticket->batch->job().config().owner_uid == 1) done += ticket->count;
    Complete(*ticket, is_first ? WorkerShares::kSlowNs + 1 : 100'000);
    for (const Rank* rank : {&slow, &other}) {
      while (auto event = rank->slots->Next(absl::ZeroDuration()))
        rank->slots->Release(event->slot);
    }
  }
  size_t most = 0;
  for (int i = 0; i < 20; ++i) most = std::max(most, OfUser(TakeAll(), 1));
  EXPECT_GT(most, 2u);
}

TEST_F(SixReadsPerUser, AUserWhoseReadsStandStillLeavesRoomForTheOthers) {
  Rank one = Attach({.name = "one", .uid = 1}, 0, 4), two = Attach({.name = "two", .uid = 1}, 0, 4);
  const auto take_all = [&] {
    std::vector<Ticket> tickets;
    while (auto ticket = scheduler_.Take()) tickets.push_back(*ticket);
    return tickets;
  };
  const auto places = [](const std::vector<Ticket>& tickets) {
    int64_t sum = 0;
    for (const Ticket& ticket : tickets) sum += ticket.count;
    return sum;
  };
  const std::vector<Ticket> stuck = take_all();
  EXPECT_EQ(places(stuck), 6) << "of both jobs of the user together";
  Rank other = Attach({.name = "other", .uid = 2}, 0, 1);
  const std::vector<Ticket> others = take_all();
  EXPECT_EQ(places(others), 4) << "the other user's whole batch";
  for (const Ticket& ticket : others) EXPECT_EQ(ticket.batch->job().config().owner_uid, 2u);

  const uint64_t generation = parking_->generation();
  Complete(stuck.front());
  EXPECT_GT(parking_->generation(), generation) << "room for reads wakes a worker";
  EXPECT_EQ(places(take_all()), stuck.front().count);
  for (const Ticket& ticket : others) Complete(ticket);
}

TEST_F(SixReadsPerUser, ATicketWithoutPlacesTakesNoRoom) {
  const JobShape shape{.records = 9, .batch_size = 4, .world_size = 2, .last = LastBatch::kPartial};
  Rank one = Attach(shape, 0, 2), two = Attach(shape, 1, 2);
  std::vector<Ticket> held;
  for (int round = 0; round < 200; ++round) {
    while (auto ticket = scheduler_.Take()) held.push_back(*ticket);
    if (held.empty()) break;
    Complete(held.back());  // the last first: those without places outlive the others
    held.pop_back();
    for (Rank* rank : {&one, &two})
      while (auto shown = rank->slots->Next(absl::ZeroDuration()))
        rank->slots->Release(shown->slot);
  }
  for (const Ticket& ticket : held) Complete(ticket);
  int64_t places = 0;
  one = Attach({.name = "after"}, 0, 4);
  while (auto ticket = scheduler_.Take()) places += ticket->count;
  EXPECT_EQ(places, 6) << "nothing was lost of the room";
}

TEST_F(SixReadsPerUser, CheapSamplesDoNotPassTheLimitInOneTicket) {
  Rank rank = Attach({.records = 1000, .batch_size = 64}, 0, 2);
  Complete(*scheduler_.Take(), 1'000);
  int64_t places = 0;
  while (auto ticket = scheduler_.Take()) places += ticket->count;
  EXPECT_EQ(places, 6);
}

TEST_F(SchedulerTest, RanksOfAJobMustAgree) {
  Rank rank = Attach({.world_size = 4}, 0, 1);
  const auto refusal = [&](JobShape shape, int64_t rank) {
    return scheduler_.Attach(NewRank(shape, rank, 1)).status();
  };
  absl::Status status = refusal({.world_size = 2}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("job 'run1' runs with world_size 4, this rank says 2"));
  status = refusal({.batch_size = 8, .world_size = 4}, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("batch_size 4, this rank says 8"));
  status = refusal({.world_size = 4, .seed = 8}, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("seed 7, this rank says 8"));
  status = refusal({.records = 99, .world_size = 4}, 1);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("dataset digest fake-100, this rank says fake-99"));
  status = refusal({.world_size = 4}, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("process 1000"));
  EXPECT_TRUE(refusal({.name = "run2", .world_size = 2}, 0).ok())
      << "another job is another matter";
  scheduler_.Detach(rank.stream);
  EXPECT_TRUE(refusal({.world_size = 2}, 0).ok()) << "the job ended with its last rank";
}

// Epochs of one step, so that workers are always making the next one's order.
TEST_F(FourWorkers, ComeToTheEndsOfEpochsTogether) {
  constexpr uint64_t kEpochs = 2000;
  const JobShape shape{.records = 6, .batch_size = 3, .world_size = 2};
  const std::vector<Rank> ranks = {Attach(shape, 0, 2), Attach(shape, 1, 2)};
  std::atomic<bool> over{false};
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&, worker] {
      for (;;) {
        const uint64_t generation = parking_->generation();
        if (over) break;  // looked at behind the generation, or its wake-up could be missed
        if (auto ticket = scheduler_.Take(worker))
          Complete(*ticket);
        else
          parking_->Sleep(generation);
      }
    });
  }
  for (uint64_t epoch = 0; epoch < kEpochs && !HasFailure(); ++epoch) {
    for (const Rank& rank : ranks) {
      const auto event = rank.slots->Next(absl::Seconds(60));
      EXPECT_TRUE(event.has_value()) << "nobody was woken for epoch " << epoch;
      if (!event.has_value()) break;
      EXPECT_EQ(event->meta.epoch, epoch);
      rank.slots->Release(event->slot);
    }
  }
  over = true;
  scheduler_.Stop();
  for (std::thread& worker : workers) worker.join();
}

// Anything may happen in any order: what comes out is always the promised sequence, and no slot is
// lost.
TEST_F(SchedulerTest, StormsOfSeeksAndClosingsKeepOrderAndSlots) {
  const uint32_t seed = feedwater::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("FEEDWATER_TEST_SEED=", seed));
  std::mt19937 random(seed);
  const JobShape shape{
      .records = 30, .batch_size = 3, .world_size = 3, .last = LastBatch::kPartial};
  std::vector<Rank> ranks;
  std::vector<std::shared_ptr<PlainSlotPool>> pools;
  std::vector<uint32_t> serials(3, 0);
  std::vector<Ticket> running;
  std::vector<std::shared_ptr<Batch>> finishing;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(Attach(shape, rank, 3));
    pools.push_back(ranks.back().slots);
  }
  const auto complete = [&](size_t i) {
    const Ticket ticket = running[i];
    running.erase(running.begin() + i);
    TicketResult result;
    if (random() % 40 == 0 && ticket.count > 0) {
      result.failed_place = ticket.first;
      result.failure = {absl::DataLossError("bad"), 1, "p"};
    }
    if (scheduler_.Complete(ticket, result,
                            {.samples = ticket.count, .cpu_ns = ticket.count * 50'000})) {
      finishing.push_back(ticket.batch);
    }
  };
  for (int round = 0; round < 300'000; ++round) {
    const size_t rank = random() % 3;
    switch (random() % 16) {
      case 0:
        ASSERT_TRUE(scheduler_
                        .Seek(ranks[rank].stream, ++serials[rank],
                              MakeCursor(ranks[rank].stream->job().order_config(), random() % 3,
                                         random() % 31))
                        .ok());
        break;
      case 1:
        if (random() % 20 == 0) {
          scheduler_.Detach(ranks[rank].stream);
          ranks[rank] = Attach(shape, static_cast<int64_t>(rank), 3, random() % 3, random() % 31);
          pools.push_back(ranks[rank].slots);
          serials[rank] = 0;
        }
        break;
      case 2:
      case 3:
      case 4:
        if (auto event = ranks[rank].slots->Next(absl::ZeroDuration());
            event.has_value() && event->slot >= 0) {
          ranks[rank].slots->Release(event->slot);
        }
        break;
      case 5:
      case 6:
        if (!finishing.empty()) {
          const size_t i = random() % finishing.size();
          const std::shared_ptr<Batch> batch = finishing[i];
          finishing.erase(finishing.begin() + i);
          scheduler_.Finish(batch, absl::OkStatus());
        }
        break;
      default:
        if (running.size() < 12 && random() % 2 == 0) {
          if (auto ticket = scheduler_.Take()) running.push_back(*ticket);
        } else if (!running.empty()) {
          complete(random() % running.size());
        }
    }
  }
  for (Rank& rank : ranks) scheduler_.Detach(rank.stream);
  while (!running.empty()) complete(0);
  for (const auto& batch : finishing) scheduler_.Finish(batch, absl::OkStatus());
  for (const auto& pool : pools) {
    while (auto event = pool->Next(absl::ZeroDuration())) {
      if (event->slot >= 0) pool->Release(event->slot);
    }
    EXPECT_EQ(pool->free_slots(), 3);
    EXPECT_THAT(pool->violations(), IsEmpty());
  }
}

}  // namespace
}  // namespace feedwater::server
