// Records that can only be made one after the other, each by its worker: who is asked for which, in
// which order, and what becomes of those that nobody waits for any more.
#include <malloc.h>

#include <future>

#include "tests/provider/played_process.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

int64_t HeapBytes() { return static_cast<int64_t>(mallinfo2().uordblks); }

TEST_F(ProvidersTest, RecordsOfAnIterableDatasetComeFromTheirWorker) {
  const auto mine = [](int64_t worker) {
    return [worker](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
      EXPECT_EQ(entry->record % 2, worker);
      return TenTimes(self, window, entry);
    };
  };
  PlayedProcess one(providers_.get(), WorkerOf(1000, 0, 2), mine(0));
  PlayedProcess spare(providers_.get(), WorkerOf(1000, 0, 2), mine(0));
  PlayedProcess two(providers_.get(), WorkerOf(1000, 1, 2), mine(1));
  const auto giver = Giver();
  EXPECT_TRUE(giver->is_in_order());
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 500; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(takers[i]->Number(), 10 * i);
  EXPECT_EQ(one.asked(), 250);
  EXPECT_EQ(spare.asked(), 0);  // it would have to make what the first one has made
  EXPECT_EQ(two.asked(), 250);
  one.End();
  for (int64_t i = 500; i < 600; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (int64_t i = 500; i < 600; ++i) EXPECT_EQ(takers[i]->Number(), 10 * i);
  EXPECT_EQ(spare.asked(), 50);
  PlayedProcess other(providers_.get(), WorkerOf(1000, 0, 3), TenTimes);
  EXPECT_THAT(std::string(other.entered().status().message()),
              HasSubstr("the number of workers is 2 there and 3 here"));
}

// Whoever asks, in whatever order: a place before would make the iterator begin anew.
TEST_F(ProvidersTest, AWorkerIsAskedInTheOrderOfItsEpochs) {
  PlayedProcess other(providers_.get(), WorkerOf(1000, 1, 2), TenTimes);
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  const auto ask = [&](int64_t record, uint64_t epoch) {
    takers.push_back(std::make_shared<Taker>());
    giver->Ask(record, {7, epoch}, takers.back());
  };
  for (int64_t burst : {3, 0, 2, 1}) {
    for (int64_t i = 0; i < 32; ++i) ask(2 * (32 * burst + i), burst == 3 ? 4 : 5);
  }
  std::vector<std::pair<uint64_t, int64_t>> asked;
  PlayedProcess one(providers_.get(), WorkerOf(1000, 0, 2),
                    [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                      asked.emplace_back(entry->seed[1], entry->record);
                      return TenTimes(self, window, entry);
                    });
  giver->Flush();
  for (const auto& taker : takers) EXPECT_GE(taker->Number(), 0);
  EXPECT_EQ(asked.size(), takers.size());
  EXPECT_TRUE(std::is_sorted(asked.begin(), asked.end()));
}

// Its program serves another worker, and so is there: a process takes its time to start.
TEST_F(ProvidersTest, AWorkerThatIsBeingReplacedIsWaitedFor) {
  PlayedProcess one(providers_.get(), WorkerOf(1000, 0, 2), TenTimes);
  { PlayedProcess two(providers_.get(), WorkerOf(1000, 1, 2), TenTimes); }
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 1; }));
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  provided.LookAround(MonotonicNs() + Provided::kAbsentNs + 1'000'000'000);
  EXPECT_EQ(providers_->List(kUser)[0].counts.waiting, 1);
  PlayedProcess again(providers_.get(), WorkerOf(1000, 1, 2), TenTimes);
  EXPECT_EQ(taker->Number(), 10);
  again.End();
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 1; }));
  const auto late = Ask(*giver, 3);
  provided.LookAround(MonotonicNs() + Provided::kStartingNs + 1'000'000'000);
  EXPECT_TRUE(absl::IsUnavailable(late->Get().first));
}

// A process that is stopped does not watch its own time. It is given that of the samples which it
// has to make, not of all those before.
TEST_F(ProvidersTest, AStoppedWorkerIsGivenTheTimeOfWhatIsLeft) {
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  Offer offer = WorkerOf(100'000, 0, 1);
  offer.timeout_seconds = 1;
  PlayedProcess process(providers_.get(), offer,
                        [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          if (entry->record > 5000) is_over.wait();
                          return TenTimes(self, window, entry);
                        });
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  const auto before = Ask(*giver, 5000);
  giver->Flush();
  EXPECT_EQ(before->Number(), 50'000);
  const auto after = Ask(*giver, 5001);
  giver->Flush();
  EXPECT_TRUE(provided.LookAround(MonotonicNs() + 5'000'000'000).empty());
  EXPECT_EQ(provided.LookAround(MonotonicNs() + 60'000'000'000).size(), 1u);
  over.set_value();
}

// To reach a record of an iterable dataset may take hours that nobody waits for.
TEST_F(ProvidersTest, AWorkerIsToldOfRecordsThatNobodyWaitsForAnyMore) {
  PlayedProcess process(providers_.get(), WorkerOf(100'000, 0, 1),
                        [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          if (entry->record < 5000) return TenTimes(self, window, entry);
                          // As a process that skips looks, now and then.
                          EXPECT_TRUE(Eventually([&] {
                            wire::Entry now;
                            std::memcpy(&now, self.Window(window) + self.index_ * sizeof(now),
                                        sizeof(now));
                            return now.input_offset == SharedWindows::kUnwanted;
                          }));
                          PlayedProcess::Fail(self.Window(window), entry, "it is not wanted");
                          return true;
                        });
  const auto giver = Giver();
  auto unwanted = Ask(*giver, 5000);
  giver->Flush();
  ASSERT_TRUE(Eventually([&] { return process.asked() == 1; }));
  unwanted = nullptr;
  const auto wanted = Ask(*giver, 7);
  giver->Flush();
  EXPECT_EQ(wanted->Number(), 70);
}

// How far it had come when it was told is not known: it may have to begin anew for a place before.
TEST_F(ProvidersTest, AfterASkipThatNobodyWaitsForAWorkerIsGivenTheTimeToBeginAnew) {
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  Offer offer = WorkerOf(100'000, 0, 1);
  offer.timeout_seconds = 1;
  PlayedProcess process(
      providers_.get(), offer, [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
        if (entry->record >= 5000) {
          EXPECT_TRUE(Eventually([&] {
            wire::Entry now;
            std::memcpy(&now, self.Window(window) + self.index_ * sizeof(now), sizeof(now));
            return now.input_offset == SharedWindows::kUnwanted;
          }));
          PlayedProcess::Fail(self.Window(window), entry, "it is not wanted");
          return true;
        }
        if (entry->record == 1000) is_over.wait();
        return TenTimes(self, window, entry);
      });
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  const auto before = Ask(*giver, 998);
  giver->Flush();
  EXPECT_EQ(before->Number(), 9980);
  auto unwanted = Ask(*giver, 5000);
  giver->Flush();
  ASSERT_TRUE(Eventually([&] { return process.asked() == 2; }));
  unwanted = nullptr;
  const auto wanted = Ask(*giver, 1000);
  giver->Flush();
  ASSERT_TRUE(Eventually([&] { return process.asked() == 3; }));
  EXPECT_TRUE(provided.LookAround(MonotonicNs() + 900'000'000'000).empty());
  EXPECT_TRUE(Eventually(
      [&] { return provided.LookAround(MonotonicNs() + 1'100'000'000'000).size() == 1; }));
  over.set_value();
}

// A trainer that seeks leaves behind what it asked for. While the process does not answer, nobody
// else would clear it away, and it is in nobody's share.
TEST_F(ProvidersTest, WhatNobodyWaitsForDoesNotPileUpBeforeAProcessThatDoesNotAnswer) {
  for (const int64_t workers : {0, 1}) {
    std::promise<void> over;
    std::shared_future<void> is_over = over.get_future().share();
    PlayedProcess process(providers_.get(), WorkerOf(1 << 20, 0, workers),
                          [&](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                            is_over.wait();
                            return TenTimes(self, window, entry);
                          });
    const auto giver = Giver();
    Provided& provided = dynamic_cast<Provided&>(*giver);
    std::vector<std::shared_ptr<Taker>> wanted;
    const int64_t begin = HeapBytes();
    for (int64_t seek = 0; seek < 100; ++seek) {
      std::vector<std::shared_ptr<Taker>> open;
      for (int64_t i = 0; i < 200; ++i) open.push_back(Ask(*giver, 200 * seek + i));
      giver->Flush();
      wanted.push_back(open[seek]);
    }
    EXPECT_LT(provided.Counts().waiting, 4096);  // with those of the last seek
    EXPECT_LT(HeapBytes() - begin, 4 << 20);
    provided.LookAround(MonotonicNs());
    EXPECT_LE(provided.Counts().waiting, static_cast<int64_t>(wanted.size()));
    over.set_value();
    for (int64_t seek = 0; seek < 100; ++seek)
      EXPECT_EQ(wanted[seek]->Number(), 10 * (200 * seek + seek));
    process.End();
    EXPECT_TRUE(Eventually([&] { return provided.processes() == 0; }));
  }
}

// 80 MB for the lanes of all of them would be nobody's.
TEST_F(ProvidersTest, WorkersOfOtherMachinesTakeNoMemory) {
  const int64_t begin = HeapBytes();
  PlayedProcess one(providers_.get(), WorkerOf(1 << 20, 0, 1 << 16), TenTimes);
  const auto giver = Giver();
  EXPECT_EQ(Ask(*giver, 1 << 16) != nullptr, true);
  giver->Flush();
  EXPECT_LT(HeapBytes() - begin, 4 << 20);
}

TEST_F(ProvidersTest, WorkersThatWereWaitedForTakeNoMemory) {
  constexpr int64_t kWorkers = 1 << 16;
  PlayedProcess one(providers_.get(), WorkerOf(int64_t{1} << 40, 0, kWorkers), TenTimes);
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  const int64_t begin = HeapBytes();
  // Their trainer seeks: nobody waits any more for what it asked for.
  for (int64_t worker = 1; worker < kWorkers; ++worker) Ask(*giver, worker);
  provided.LookAround(MonotonicNs());
  EXPECT_LT(HeapBytes() - begin, 1 << 20);
  // Or it waits until it is told.
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t worker = 1; worker < kWorkers; ++worker) takers.push_back(Ask(*giver, worker));
  provided.LookAround(MonotonicNs() + Provided::kAbsentNs);
  for (const auto& taker : takers) EXPECT_TRUE(absl::IsUnavailable(taker->Get().first));
  takers = {};
  EXPECT_LT(HeapBytes() - begin, 1 << 20);
}

// Every record of it would wait as long otherwise.
TEST_F(ProvidersTest, AWorkerThatIsKnownToBeAbsentIsNotWaitedForAgain) {
  PlayedProcess one(providers_.get(), WorkerOf(1000, 0, 2), TenTimes);
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  const auto first = Ask(*giver, 1);
  const int64_t asked_ns = MonotonicNs();
  provided.LookAround(asked_ns + Provided::kAbsentNs);
  EXPECT_TRUE(absl::IsUnavailable(first->Get().first));
  const auto second = Ask(*giver, 3);
  giver->Flush();
  provided.LookAround(asked_ns + Provided::kAbsentNs);
  EXPECT_EQ(provided.Counts().waiting, 0);
  EXPECT_TRUE(absl::IsUnavailable(second->Get().first));
  PlayedProcess two(providers_.get(), WorkerOf(1000, 1, 2), TenTimes);
  const auto third = Ask(*giver, 5);
  giver->Flush();
  provided.LookAround(asked_ns + Provided::kAbsentNs);
  EXPECT_EQ(third->Number(), 50);
}

TEST_F(ProvidersTest, AWorkerThatIsNotThereIsNamed) {
  PlayedProcess one(providers_.get(), WorkerOf(1000, 0, 2), TenTimes);
  const auto giver = Giver();
  const auto here = Ask(*giver, 0), absent = Ask(*giver, 1);
  giver->Flush();
  EXPECT_EQ(here->Number(), 0);
  const absl::Status status = absent->Get().first;
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 of 2 of source 'mine'"));
}

}  // namespace
}  // namespace feedwater::server
