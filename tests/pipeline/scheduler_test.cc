// What the scheduler gives to whom in which order, and what becomes of it.
#include "server/pipeline/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/pipeline/scheduler_fixture.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// With a million shards it takes a fifth of a second, and whoever seeks serves all users' sessions.
TEST_F(SchedulerTest, OfAPlaceThatWasSoughtAWorkerMakesTheOrder) {
  Rank rank = Attach({.shuffle = Shuffle::kBlock}, 0, 2);
  const OrderCursor start = MakeCursor(rank.stream->job().order_config(), 5, 8);
  ASSERT_TRUE(scheduler_.Seek(rank.stream, 1, start).ok());
  scheduler_.Snapshot();
  EXPECT_FALSE(start.order->is_prepared());
  int64_t charged_ns = 0;
  auto ticket = scheduler_.Take(0, std::nullopt, &charged_ns);
  ASSERT_TRUE(ticket.has_value());
  EXPECT_EQ(Place(*ticket), std::make_tuple(5u, 2, 0, 0));
  EXPECT_TRUE(start.order->is_prepared());
  EXPECT_GT(charged_ns, 0);
  Complete(*ticket);
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
  const JobShape shape{.records = 6, .batch_size = 3, .world_size = 2, .shuffle = Shuffle::kBlock};
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
  const JobShape shape{.records = 30,
                       .batch_size = 3,
                       .world_size = 3,
                       .last = LastBatch::kPartial,
                       .shuffle = random() % 2 == 0 ? Shuffle::kFull : Shuffle::kBlock};
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
