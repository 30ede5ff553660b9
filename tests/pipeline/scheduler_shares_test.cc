// What each job and user gets of the workers: by CPU time, by slow samples, by samples under way.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/pipeline/scheduler_fixture.h"

namespace feedwater::server {
namespace {

class SixReadsPerUser : public SchedulerTest {
 protected:
  SixReadsPerUser() : SchedulerTest(6) {}
};

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

}  // namespace
}  // namespace feedwater::server
