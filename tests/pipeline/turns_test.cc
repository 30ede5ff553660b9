#include "server/pipeline/turns.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace feedwater::server {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr bool kQuick = false, kSlow = true;

// A call that is ready when it is told to be.
class Called final : public SuspendedCall {
 public:
  explicit Called(const bool* is_ready) : is_ready_(*is_ready) {}
  bool IsReady() override { return is_ready_; }

 private:
  const bool& is_ready_;
};

// Samples by name, as a worker holds them.
class TurnsTest : public ::testing::Test {
 protected:
  void Take(uint32_t user, bool slow, const std::vector<int>& names) {
    turns_.Take(user, slow, static_cast<int64_t>(names.size()));
    for (int name : names) {
      samples_[name].user = user;
      samples_[name].slow = slow;
    }
  }
  void TakeAndQueue(uint32_t user, bool slow, const std::vector<int>& names) {
    Take(user, slow, names);
    for (int name : names) turns_.Queue(&samples_[name]);
  }
  // The sample waits for a call.
  void HasCall(int name, const bool* is_ready) {
    const std::string op = "op";
    OpCall call;
    call.name = &op;
    samples_[name].calls.Suspend(call, std::make_unique<Called>(is_ready));
  }
  // The name of the next one, which takes that long; -1: none.
  int Make(int64_t ns) {
    Turns::Sample* const next = turns_.Next();
    if (next == nullptr) return -1;
    turns_.Made(*next, ns);
    turns_.Done(*next);
    return NameOf(*next);
  }
  std::vector<int> MakeAll(int64_t ns) {
    std::vector<int> order;
    while (turns_.queued() > 0) order.push_back(Make(ns));
    return order;
  }
  int NameOf(const Turns::Sample& sample) const {
    for (const auto& [name, one] : samples_)
      if (&one == &sample) return name;
    return -1;
  }

  std::map<int, Turns::Sample> samples_;
  std::set<int> pointless_;
  Turns turns_{
      [this](const Turns::Sample& sample) { return pointless_.count(NameOf(sample)) > 0; }};
};

TEST_F(TurnsTest, OneUsersAreMadeInTheirOrder) {
  TakeAndQueue(1, kQuick, {10, 11, 12});
  EXPECT_FALSE(turns_.several());
  EXPECT_EQ(MakeAll(kMs), (std::vector<int>{10, 11, 12}));
  EXPECT_EQ(Make(kMs), -1);
}

TEST_F(TurnsTest, WhoHasUsedTheLeastIsNext) {
  TakeAndQueue(1, kQuick, {10, 11, 12, 13});
  TakeAndQueue(2, kQuick, {20, 21});
  EXPECT_TRUE(turns_.several());
  EXPECT_EQ(Make(3 * kMs), 10);
  EXPECT_EQ(Make(kMs), 20);
  EXPECT_EQ(Make(kMs), 21);
  EXPECT_FALSE(turns_.several());
  EXPECT_EQ(MakeAll(kMs), (std::vector<int>{11, 12, 13}));
}

TEST_F(TurnsTest, ATurnOfCheapSamplesStaysForAMoment) {
  TakeAndQueue(1, kQuick, {10, 11, 12, 13});
  TakeAndQueue(2, kQuick, {20, 21});
  EXPECT_EQ(MakeAll(100'000), (std::vector<int>{10, 11, 12, 20, 21, 13}));
}

TEST_F(TurnsTest, WhoWasAwayGetsLittleCreditForIt) {
  TakeAndQueue(1, kQuick, {10, 11, 12, 13});
  EXPECT_EQ(Make(1000 * kMs), 10);
  EXPECT_EQ(Make(kMs), 11);
  TakeAndQueue(2, kQuick, {20, 21, 22, 23});
  EXPECT_EQ(Make(kMs), 20);
  EXPECT_EQ(Make(20 * kMs), 21);  // which could be 50 times as much without a bound
  EXPECT_EQ(Make(kMs), 12);
}

TEST_F(TurnsTest, ASlowSampleWaitsForQuickOnesOfOthersInHand) {
  TakeAndQueue(1, kSlow, {10});
  Take(2, kQuick, {20, 21});
  EXPECT_EQ(Make(kMs), -1);  // the others are still being read
  turns_.Queue(&samples_[20]);
  EXPECT_EQ(Make(500 * kMs), 20);
  EXPECT_EQ(Make(kMs), -1);
  turns_.Queue(&samples_[21]);
  EXPECT_EQ(Make(kMs), 21);
  EXPECT_EQ(Make(kMs), 10);
}

TEST_F(TurnsTest, ASlowSampleDoesNotWaitForWhatStorageKeeps) {
  TakeAndQueue(1, kSlow, {10, 11});
  Take(2, kQuick, {20});
  turns_.HeldUp(samples_[20], 1);
  EXPECT_EQ(Make(kMs), 10);
  turns_.HeldUp(samples_[20], -1);
  EXPECT_EQ(Make(kMs), -1);
}

TEST_F(TurnsTest, ASlowSampleNobodyWantsGoesAtOnce) {
  TakeAndQueue(1, kSlow, {10, 11});
  Take(2, kQuick, {20});
  pointless_.insert(11);
  EXPECT_EQ(Make(0), 11);
  EXPECT_EQ(Make(0), -1);
}

TEST_F(TurnsTest, SlowSamplesOfTwoUsersDoNotWaitForEachOther) {
  TakeAndQueue(1, kSlow, {10, 11});
  TakeAndQueue(2, kSlow, {20, 21});
  EXPECT_EQ(MakeAll(300 * kMs), (std::vector<int>{10, 20, 21, 11}));
}

TEST_F(TurnsTest, BesideASlowSampleOthersGetOneTicketBetweenTwo) {
  EXPECT_FALSE(turns_.MayTake().nobody);
  EXPECT_FALSE(turns_.MayTake().only_user.has_value());
  TakeAndQueue(1, kSlow, {10, 11});
  EXPECT_EQ(turns_.MayTake().only_user, 1u);
  EXPECT_EQ(Make(300 * kMs), 10);
  EXPECT_FALSE(turns_.MayTake().only_user.has_value());
  turns_.Asked();
  EXPECT_EQ(turns_.MayTake().only_user, 1u);
  TakeAndQueue(2, kSlow, {20});
  EXPECT_TRUE(turns_.MayTake().nobody);
  EXPECT_EQ(Make(300 * kMs), 20);
  EXPECT_FALSE(turns_.MayTake().nobody);
}

TEST_F(TurnsTest, ASuspendedSampleGoesOnWhenItsCallIsReady) {
  Take(1, kSlow, {10, 11});
  bool is_ready = false;
  HasCall(10, &is_ready);
  EXPECT_FALSE(turns_.HasSuspended(samples_[11]));
  turns_.Suspend(&samples_[10]);
  EXPECT_TRUE(turns_.HasSuspended(samples_[11]));
  turns_.Suspend(&samples_[11]);  // behind it
  EXPECT_EQ(turns_.Resume(/*any=*/false), nullptr);
  EXPECT_FALSE(turns_.OthersWait(2)) << "nothing of it can be made";
  is_ready = true;
  EXPECT_TRUE(turns_.OthersWait(2));
  EXPECT_FALSE(turns_.OthersWait(1));
  EXPECT_EQ(turns_.Resume(/*any=*/false), &samples_[10]);
  EXPECT_EQ(turns_.Resume(/*any=*/false), &samples_[11]);
  EXPECT_EQ(turns_.Resume(/*any=*/true), nullptr);
}

TEST_F(TurnsTest, ASuspendedSampleGoesOnWhereNobodyWantsItOrNothingElseIsToDo) {
  Take(1, kSlow, {10, 11});
  bool is_ready = false;
  for (int one : {10, 11}) {
    HasCall(one, &is_ready);
    turns_.Suspend(&samples_[one]);
  }
  pointless_.insert(11);
  EXPECT_EQ(turns_.Resume(/*any=*/false), &samples_[11]);
  EXPECT_EQ(turns_.Resume(/*any=*/false), nullptr);
  EXPECT_EQ(turns_.Resume(/*any=*/true), &samples_[10]);
  EXPECT_FALSE(turns_.HasSuspended(samples_[10]));
}

TEST_F(TurnsTest, SamplesOfAnotherJobDoNotStandBehindASuspendedOne) {
  Take(1, kSlow, {10, 11});
  samples_[11].job = reinterpret_cast<const Job*>(&samples_);
  bool is_ready = false;
  HasCall(10, &is_ready);
  turns_.Suspend(&samples_[10]);
  EXPECT_FALSE(turns_.HasSuspended(samples_[11]));
}

TEST_F(TurnsTest, DebtsOutliveWhatWasInHandUntilManyUsersWereHere) {
  TakeAndQueue(1, kQuick, {10});
  EXPECT_EQ(Make(5 * kMs), 10);
  turns_.DropIdleUsers();
  TakeAndQueue(1, kQuick, {11});
  TakeAndQueue(2, kQuick, {20});
  EXPECT_EQ(Make(kMs), 20);
  EXPECT_EQ(Make(kMs), 11);
  for (uint32_t user = 100; user < 200; ++user) {
    TakeAndQueue(user, kQuick, {static_cast<int>(user)});
    EXPECT_EQ(Make(kMs), static_cast<int>(user));
  }
  turns_.DropIdleUsers();
  TakeAndQueue(3, kQuick, {30});
  TakeAndQueue(1, kQuick, {12});
  EXPECT_EQ(Make(kMs), 12);  // of the lowest number, since nobody has used anything
}

}  // namespace
}  // namespace feedwater::server
