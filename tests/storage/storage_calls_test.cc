// Goal: calls that hang cost the threads of the user whose calls they are, and nobody else's; the
// end waits for none of them. Method: calls that stand at a gate.
#include "server/storage/storage_calls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace feedwater::server {
namespace {

// Shared with the calls, which may outlive the test.
struct Gate {
  Mutex mu;
  CondVar opened;
  bool open ABSL_GUARDED_BY(mu) = false;
  std::atomic<int> at_it{0}, through{0};
  void Open() {
    MutexLock lock(&mu);
    open = true;
    opened.SignalAll();
  }
};

class StandsAt final : public StorageCall {
 public:
  explicit StandsAt(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  void Run() override {
    ++gate_->at_it;
    {
      MutexLock lock(&gate_->mu);
      while (!gate_->open) gate_->opened.Wait(&gate_->mu);
    }
    ++gate_->through;
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

bool Await(const std::atomic<int>& count, int wanted) {
  const int64_t until = MonotonicNs() + 30'000'000'000;
  while (count < wanted && MonotonicNs() < until) usleep(1000);
  return count >= wanted;
}

std::shared_ptr<Gate> OpenGate() {
  auto gate = std::make_shared<Gate>();
  gate->Open();
  return gate;
}

TEST(StorageCalls, OneUsersHangsLeaveTheOthersTheirThreads) {
  StorageCalls calls({.threads_per_user = 4, .threads = 64});
  auto closed = std::make_shared<Gate>();
  for (int i = 0; i < 100; ++i) calls.Start(1, std::make_shared<StandsAt>(closed));
  EXPECT_TRUE(Await(closed->at_it, 4));
  const auto open = OpenGate();
  for (int i = 0; i < 1000; ++i) calls.Start(2, std::make_shared<StandsAt>(open));
  EXPECT_TRUE(Await(open->through, 1000)) << "another user's calls go on";
  EXPECT_EQ(closed->at_it, 4) << "as many as one user may have";
  EXPECT_EQ(calls.counts().queued, 96u);
  EXPECT_LE(calls.counts().threads, 8u);
  closed->Open();
  EXPECT_TRUE(Await(closed->through, 100)) << "and these when storage is back";
}

TEST(StorageCalls, EveryCallThatMayRunFindsAThread) {
  // Two calls at once, while one thread is idle: both must run, although the first one hangs.
  for (int round = 0; round < 50; ++round) {
    StorageCalls calls({.threads_per_user = 4, .threads = 8});
    const auto open = OpenGate();
    calls.Start(1, std::make_shared<StandsAt>(open));
    ASSERT_TRUE(Await(open->through, 1));
    auto closed = std::make_shared<Gate>();
    calls.Start(1, std::make_shared<StandsAt>(closed));
    calls.Start(1, std::make_shared<StandsAt>(open));
    EXPECT_TRUE(Await(open->through, 2));
    closed->Open();
  }
}

TEST(StorageCalls, WhatHasNotBegunCanBeTakenBack) {
  StorageCalls calls({.threads_per_user = 1, .threads = 8});
  auto closed = std::make_shared<Gate>();
  auto first = std::make_shared<StandsAt>(closed), second = std::make_shared<StandsAt>(closed);
  calls.Start(1, first);
  ASSERT_TRUE(Await(closed->at_it, 1));
  calls.Start(1, second);
  EXPECT_FALSE(calls.Cancel(1, first.get()));
  EXPECT_TRUE(calls.Cancel(1, second.get()));
  EXPECT_FALSE(calls.Cancel(1, second.get()));
  EXPECT_FALSE(calls.Cancel(2, second.get()));
  closed->Open();
  EXPECT_TRUE(Await(closed->through, 1));
  calls.Stop();
  EXPECT_EQ(closed->at_it, 1);
}

TEST(StorageCalls, TheEndWaitsForNoHang) {
  auto closed = std::make_shared<Gate>();
  const auto open = OpenGate();
  {
    StorageCalls calls({.threads_per_user = 2, .threads = 8});
    calls.Start(1, std::make_shared<StandsAt>(closed));
    ASSERT_TRUE(Await(closed->at_it, 1));
    for (int i = 0; i < 10; ++i) calls.Start(2, std::make_shared<StandsAt>(open));
  }
  EXPECT_EQ(open->through, 10) << "what can end has ended";
  EXPECT_EQ(closed->through, 0);
  closed->Open();
  EXPECT_TRUE(Await(closed->through, 1)) << "its thread owns what it needs";
}

TEST(StorageCalls, IdleThreadsEnd) {
  StorageCalls calls({.threads_per_user = 8, .threads = 8, .idle = absl::Milliseconds(10)});
  const auto open = OpenGate();
  for (int i = 0; i < 100; ++i) calls.Start(1, std::make_shared<StandsAt>(open));
  ASSERT_TRUE(Await(open->through, 100));
  const int64_t until = MonotonicNs() + 30'000'000'000;
  while (calls.counts().threads > 0 && MonotonicNs() < until) usleep(1000);
  EXPECT_EQ(calls.counts().threads, 0u);
  calls.Start(1, std::make_shared<StandsAt>(open));
  EXPECT_TRUE(Await(open->through, 101));
}

}  // namespace
}  // namespace feedwater::server
