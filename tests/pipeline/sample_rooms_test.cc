#include "server/pipeline/sample_rooms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

class SampleRoomsTest : public ::testing::Test {
 protected:
  std::shared_ptr<SampleRooms> Rooms(int workers) {
    SampleRooms::Options options;
    options.shares = shares_;
    options.workers = workers;
    options.patience = absl::Milliseconds(50);
    options.changed = [this] { ++changed_; };
    return SampleRooms::Create(std::move(options));
  }
  static void AwaitWaiting(const SampleRooms& rooms, int count) {
    while (rooms.waiting() != count) absl::SleepFor(absl::Milliseconds(1));
  }

  // Two that ask one after the other, while `first` is there: the second would not fit beside the
  // one before it.
  struct Asked {
    uint32_t user;
    int64_t bytes;
  };
  static void ExpectTheirOrder(SampleRooms& rooms, SampleRooms::Room first, Asked before,
                               Asked after) {
    std::vector<int64_t> order;
    const auto ask = [&](const Asked& asked, int waiting) {
      std::thread thread([&rooms, &order, &asked] {
        const auto room = rooms.Enter(asked.user, asked.bytes, nullptr);
        EXPECT_TRUE(room.ok());
        order.push_back(asked.bytes);
      });
      AwaitWaiting(rooms, waiting);
      return thread;
    };
    std::thread second = ask(before, 1), third = ask(after, 2);
    first.Release();
    second.join();
    third.join();
    EXPECT_THAT(order, ::testing::ElementsAre(before.bytes, after.bytes));
  }

  const std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create(1000);
  const std::shared_ptr<UserShares> shares_ = std::make_shared<UserShares>(budget_);
  int changed_ = 0;
};

TEST_F(SampleRoomsTest, TheLargestClaimCountsOnEveryWorker) {
  const auto rooms = Rooms(3);
  auto small = *rooms->Admit(0, "a", 100, 0);
  EXPECT_EQ(small->workers(), INT_MAX);
  EXPECT_EQ(budget_->planned_bytes(), 300);
  auto large = *rooms->Admit(0, "b", 250, 0);
  EXPECT_EQ(budget_->planned_bytes(), 750);
  EXPECT_EQ(rooms->OfWorker(2), 250);
  large.reset();
  EXPECT_EQ(changed_, 1);
  EXPECT_EQ(rooms->OfWorker(2), 100);
  EXPECT_EQ(budget_->planned_bytes(), 750);  // until the workers have given it back
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(rooms->IsSettled(i));
    rooms->Settle(i);
    EXPECT_TRUE(rooms->IsSettled(i));
  }
  EXPECT_EQ(budget_->planned_bytes(), 300);
  small.reset();
  for (int i = 0; i < 3; ++i) rooms->Settle(i);
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

TEST_F(SampleRoomsTest, ProcessesOfSeveralJobsAddUp) {
  const auto rooms = Rooms(2);
  const auto one = *rooms->Admit(0, "a", 80, 20), other = *rooms->Admit(0, "b", 100, 50);
  EXPECT_EQ(budget_->planned_bytes(), 500);
  const auto own = *rooms->Admit(0, "c", 50, 0);
  EXPECT_EQ(budget_->planned_bytes(), 600);
  EXPECT_EQ(rooms->OfWorker(0), 50);  // the processes' is not for its buffers
}

TEST_F(SampleRoomsTest, RanksOfOneJobShareAClaim) {
  const auto rooms = Rooms(2);
  const auto one = *rooms->Admit(0, "a", 400, 0), other = *rooms->Admit(0, "a", 400, 0);
  EXPECT_EQ(one, other);
  EXPECT_EQ(budget_->planned_bytes(), 800);
}

TEST_F(SampleRoomsTest, AJobRunsOnAsManyWorkersAsHaveRoom) {
  const auto rooms = Rooms(4);
  const auto claim = *rooms->Admit(0, "a", 400, 0);
  EXPECT_EQ(claim->workers(), 2);
  EXPECT_EQ(budget_->planned_bytes(), 800);
}

TEST_F(SampleRoomsTest, AJobGetsTheOtherWorkersOnceThereIsRoom) {
  const auto rooms = Rooms(3);
  auto arena = *budget_->Reserve("arenas", 700);
  const auto claim = *rooms->Admit(0, "a", 300, 0);
  EXPECT_EQ(claim->workers(), 1);
  arena.Release();
  rooms->UseRoom();
  EXPECT_EQ(claim->workers(), INT_MAX);
  EXPECT_EQ(budget_->planned_bytes(), 900);
  EXPECT_EQ(changed_, 1);
}

TEST_F(SampleRoomsTest, OneUserLeavesRoomForOthers) {
  SampleRooms::Options options;
  options.shares = shares_;
  options.workers = 2;
  shares_->Limit(500);
  const auto rooms = SampleRooms::Create(std::move(options));
  auto first = *rooms->Admit(1, "a", 100, 50);
  EXPECT_EQ(first->workers(), INT_MAX);
  const auto second = *rooms->Admit(1, "b", 100, 50);
  EXPECT_EQ(second->workers(), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(rooms->Admit(1, "c", 100, 50).status()));
  EXPECT_EQ((*rooms->Admit(2, "c", 100, 50))->workers(), INT_MAX);
  first.reset();
  const auto third = *rooms->Admit(1, "c", 100, 50);  // in place of the first, which is not settled
  EXPECT_TRUE(absl::IsResourceExhausted(rooms->Admit(1, "d", 100, 50).status()));
  EXPECT_EQ(second->workers(), 1);
}

TEST_F(SampleRoomsTest, AnEndedClaimNeverLeavesLessThanTheOthersHave) {
  const auto rooms = Rooms(1);
  auto small = *rooms->Admit(0, "a", 10, 7);
  const auto large = *rooms->Admit(0, "b", 150, 50);
  small.reset();
  rooms->Settle(0);
  EXPECT_EQ(budget_->planned_bytes(), 200);
}

TEST_F(SampleRoomsTest, ALargeSampleWaitsSomeSecondsForOthersMemory) {
  SampleRooms::Options options;
  options.shares = shares_;
  const auto rooms = SampleRooms::Create(std::move(options));
  auto arena = *budget_->Reserve("arenas", 500);
  std::thread leaver([&] {
    AwaitWaiting(*rooms, 1);
    arena.Release();
  });
  EXPECT_TRUE(rooms->Enter(0, 600, nullptr).ok());
  leaver.join();
}

TEST_F(SampleRoomsTest, WhatFitsOnNoWorkerIsRefusedWithTheSum) {
  const auto rooms = Rooms(4);
  const auto claim = rooms->Admit(0, "a", 1001, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(claim.status()));
  EXPECT_THAT(claim.status().message(), HasSubstr("this request (samples)"));
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

TEST_F(SampleRoomsTest, LargeSamplesWaitForEachOtherInTheirOrder) {
  const auto rooms = Rooms(3);
  ExpectTheirOrder(*rooms, *rooms->Enter(0, 700, nullptr), {0, 600}, {0, 500});
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

TEST_F(SampleRoomsTest, WhatDoesNotFitEvenAloneIsRefused) {
  const auto rooms = Rooms(2);
  const auto arena = *budget_->Reserve("arenas", 500);
  const auto room = rooms->Enter(0, 600, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(room.status()));
  EXPECT_THAT(room.status().message(), HasSubstr("arenas 500"));
}

// What the first one waits for may be what the others hold.
TEST_F(SampleRoomsTest, OfThoseThatHoldMemoryOnlyTheFirstWaits) {
  SampleRooms::Options options;
  options.shares = shares_;
  const auto rooms = SampleRooms::Create(std::move(options));
  auto records = *budget_->Reserve("read buffers", 500);
  std::thread first([&] { EXPECT_TRUE(rooms->Enter(0, 600, nullptr, true).ok()); });
  AwaitWaiting(*rooms, 1);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(IsTransient(rooms->Enter(0, 600, nullptr, true).status()));
  EXPECT_EQ(rooms->waiting(), 1);
  records.Release();
  first.join();
}

TEST_F(SampleRoomsTest, NobodyIsSentAwayWhereRoomsAreGivenBack) {
  const auto rooms = Rooms(8);
  std::atomic<int> sent_away{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn) {
        const auto room = rooms->Enter(0, 600, nullptr, true);
        if (!room.ok()) ++sent_away;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent_away, 0);
}

TEST_F(SampleRoomsTest, WhoHoldsMemoryAndWaitsInVainComesAgain) {
  const auto rooms = Rooms(2);
  const auto arena = *budget_->Reserve("arenas", 500);
  const absl::Status refused = rooms->Enter(0, 600, nullptr, true).status();
  EXPECT_TRUE(IsTransient(refused)) << refused;
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("arenas 500"));
  EXPECT_FALSE(IsTransient(rooms->Enter(0, 1001, nullptr, true).status()));
}

TEST_F(SampleRoomsTest, WhoIsGoneWaitsNoLonger) {
  const auto rooms = Rooms(2);
  const auto room = *rooms->Enter(0, 700, nullptr);
  std::atomic<bool> gone{false};
  std::thread leaver([&] { EXPECT_TRUE(absl::IsCancelled(rooms->Enter(0, 700, &gone).status())); });
  AwaitWaiting(*rooms, 1);
  gone = true;
  leaver.join();
  EXPECT_EQ(rooms->waiting(), 0);
}

// A user who always has a large job beside the small ones that come and go.
TEST_F(SampleRoomsTest, ClaimsThatTakeNothingMoreLeaveNothingBehind) {
  for (const int64_t share : {0, 900}) {
    shares_->Limit(share);
    const auto rooms = Rooms(2);
    const auto large = *rooms->Admit(1, "large", 200, 0);
    const size_t before = rooms->pieces();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(rooms->Admit(1, "small", 100, 0).ok());
    EXPECT_EQ(rooms->pieces(), before) << "with a share of " << share;
  }
}

class ASharePerUser : public SampleRoomsTest {
 protected:
  std::shared_ptr<SampleRooms> Rooms(
      std::function<bool(uint32_t, const absl::Status&)> make_room = nullptr) {
    SampleRooms::Options options;
    options.shares = shares_;
    options.make_room = std::move(make_room);
    shares_->Limit(500);
    options.patience = absl::Milliseconds(50);
    return SampleRooms::Create(std::move(options));
  }
};

TEST_F(ASharePerUser, LargeSamplesAreWithinItBesideClaims) {
  const auto rooms = Rooms();
  const auto claim = *rooms->Admit(1, "a", 100, 0);
  const auto large = *rooms->Enter(1, 300, nullptr);
  const auto refused = rooms->Enter(1, 501, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("large samples 300 B + samples 100 B"));
  EXPECT_THAT(refused.status().message(), HasSubstr("for one user"));
  EXPECT_TRUE(absl::IsResourceExhausted(rooms->Admit(1, "b", 250, 0).status()));
  const auto others_claim = rooms->Admit(2, "a", 200, 0);
  ASSERT_TRUE(others_claim.ok()) << others_claim.status();
  EXPECT_TRUE(rooms->Enter(2, 300, nullptr).ok());
}

// A claim in the place of a smaller one pays for what it needs itself, whatever was there before.
TEST_F(ASharePerUser, IsNotPassedByClaimsInEachOthersPlace) {
  const auto rooms = Rooms();
  auto small = *rooms->Admit(1, "a", 200, 0);
  auto middle = *rooms->Admit(1, "b", 400, 0);
  small.reset();
  EXPECT_EQ(shares_->Of(1)->planned_bytes(), 400);
  EXPECT_TRUE(absl::IsResourceExhausted(rooms->Admit(1, "c", 600, 0).status()));
  const auto others = *rooms->Admit(2, "a", 300, 0);  // within what is reserved for the worker
  EXPECT_EQ(shares_->Of(2)->planned_bytes(), 300);
  EXPECT_EQ(budget_->planned_bytes(), 400);
  middle.reset();
  EXPECT_EQ(shares_->Of(1)->planned_bytes(), 0);
  EXPECT_EQ(shares_->Of(2)->planned_bytes(), 300);
}

TEST_F(ASharePerUser, WhoWaitsForItKeepsNobodyElseWaiting) {
  const auto rooms = Rooms();
  auto first = *rooms->Enter(1, 400, nullptr);
  std::thread second([&] { EXPECT_TRUE(rooms->Enter(1, 300, nullptr).ok()); });
  AwaitWaiting(*rooms, 1);
  EXPECT_TRUE(rooms->Enter(2, 400, nullptr).ok());
  EXPECT_EQ(rooms->waiting(), 1);
  first.Release();
  second.join();
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

TEST_F(ASharePerUser, IsGivenBackByWhoWaitsInVainForMemory) {
  const auto rooms = Rooms();
  auto arena = *budget_->Reserve("arenas", 700);
  const auto refused = rooms->Enter(1, 400, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(refused.status().message(), HasSubstr("arenas 700"));
  arena.Release();
  EXPECT_TRUE(rooms->Enter(1, 500, nullptr).ok());
}

TEST_F(ASharePerUser, WhatNobodyUsesMakesRoomAndTheShareDoesNotLookShort) {
  auto caches = *budget_->Reserve("caches", 700);
  int asked = 0;
  const auto rooms = Rooms([&](uint32_t user, const absl::Status& refusal) {
    ++asked;
    EXPECT_EQ(user, 1u);
    EXPECT_EQ(RefusedMemoryOf(refusal).value_or(RefusedMemory{}).bytes, 400);
    EXPECT_EQ(shares_->Of(1)->own_free_bytes(), 500);
    caches.Release();
    return true;
  });
  const auto room = rooms->Enter(1, 400, nullptr);
  EXPECT_TRUE(room.ok()) << room.status();
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(rooms->Enter(1, 501, nullptr).status()));
  EXPECT_EQ(asked, 1) << "of no help";
}

TEST_F(ASharePerUser, LargeSamplesOfTwoUsersWaitForMemoryInTheirOrder) {
  const auto rooms = Rooms();
  const auto arena = *budget_->Reserve("arenas", 400);
  ExpectTheirOrder(*rooms, *rooms->Enter(1, 450, nullptr), {2, 400}, {3, 300});
}

TEST_F(SampleRoomsTest, WithoutABudgetThereIsRoomForEverything) {
  const auto rooms = SampleRooms::Create(SampleRooms::Options());
  EXPECT_EQ((*rooms->Admit(0, "a", INT64_MAX / 4, 0))->workers(), INT_MAX);
  EXPECT_TRUE(rooms->Enter(0, INT64_MAX / 4, nullptr).ok());
}

}  // namespace
}  // namespace feedwater::server
