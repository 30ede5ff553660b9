// Who serves what, and the records of sources.
#include <malloc.h>

#include <algorithm>
#include <future>

#include "tests/provider/played_process.h"

namespace feedwater::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t HeapBytes() { return static_cast<int64_t>(mallinfo2().uordblks); }

TEST_F(ProvidersTest, RecordsComeFromWhicheverProcessIsFree) {
  PlayedProcess one(providers_.get(), SourceOf(1000), TenTimes);
  PlayedProcess two(providers_.get(), SourceOf(1000), TenTimes);
  EXPECT_EQ(*one.entered(), 1);
  EXPECT_EQ(*two.entered(), 2);
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 500; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(takers[i]->Number(), 10 * i);
  EXPECT_GT(one.asked(), 0);
  EXPECT_GT(two.asked(), 0);
  EXPECT_EQ(one.asked() + two.asked(), 500);
}

Offer WorkerOf(int64_t records, int64_t worker, int64_t workers) {
  Offer offer = SourceOf(records);
  offer.source.workers = workers;
  offer.worker = worker;
  return offer;
}

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

// Saved states, and ranks on other hosts, where the user may have another number.
TEST_F(ProvidersTest, ADatasetsDigestIsTheSameForEveryUserAndItsContentsAreNot) {
  const auto dataset = [&](uint32_t user, int64_t workers, const std::string& version) {
    OfferedSource source = SourceOf(1000).source;
    source.user = user;
    source.workers = workers;
    source.version = version;
    source.contents = "abc";
    Offer offer;
    offer.source = source;
    return *GivenDataset({source, std::make_shared<Provided>(offer, WindowMemory{},
                                                             std::make_shared<WindowMaker>())},
                         nullptr);
  };
  const auto one = dataset(1, 0, ""), two = dataset(2, 0, "");
  EXPECT_EQ(one->digest(), two->digest());
  EXPECT_NE(one->contents(), two->contents());
  EXPECT_EQ(one->giver()->identity(), "pickle abc");
  EXPECT_EQ(dataset(1, 0, "3")->giver()->identity(), "version 3");
  EXPECT_EQ(ContentsIn(*one, 3), one->contents());
  const auto stream = dataset(1, 4, "");
  EXPECT_EQ(OfAnyEpoch(ContentsIn(*stream, 9)), OfAnyEpoch(ContentsIn(*stream, 10)));
  EXPECT_LT(ContentsIn(*stream, 9), ContentsIn(*stream, 10));
  EXPECT_EQ(ContentsIn(*stream, ~uint64_t{0}).size(), 32u);
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

TEST_F(ProvidersTest, WhatTheProgramSaysOfARecordIsSaidOfIt) {
  PlayedProcess process(providers_.get(), SourceOf(10),
                        [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          PlayedProcess::Fail(self.Window(window), entry, "ValueError: boom");
                          return true;
                        });
  const auto giver = Giver();
  const auto taker = Ask(*giver, 3);
  giver->Flush();
  const absl::Status status = taker->Get().first;
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ValueError: boom"));
}

TEST_F(ProvidersTest, ARecordThatEndsItsProcessIsTriedOnceMoreAndThenBad) {
  const auto make = [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
    if (entry->record != 7) return TenTimes(self, window, entry);
    std::strcpy(reinterpret_cast<char*>(self.words()), "Fatal Python error: boom");
    return false;
  };
  PlayedProcess one(providers_.get(), SourceOf(100), make),
      two(providers_.get(), SourceOf(100), make), three(providers_.get(), SourceOf(100), make);
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 100; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (int64_t i = 0; i < 100; ++i) {
    if (i == 7) continue;
    EXPECT_EQ(takers[i]->Number(), 10 * i);
  }
  const absl::Status status = takers[7]->Get().first;
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("twice"), HasSubstr("boom")));
  EXPECT_EQ(Counter("providers_died"), 2u);
}

TEST_F(ProvidersTest, ALargerRecordGetsALargerWindow) {
  constexpr uint64_t kBytes = 20 << 20;
  Offer offer = SourceOf(4);
  offer.source.fields[0].spec = {DType::kUInt8, Layout::kPlain, {-1}};
  PlayedProcess process(
      providers_.get(), offer, [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
        entry->bytes = kBytes;
        entry->offset = SharedWindows::kEntriesBytes;
        const bool fits = self.data_bytes() >= kBytes;
        entry->code =
            static_cast<uint32_t>(fits ? wire::EntryCode::kMade : wire::EntryCode::kTooLarge);
        if (fits) std::memset(self.Window(window) + entry->offset, 7, kBytes);
        return true;
      });
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 4; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (const auto& taker : takers) {
    const auto [status, bytes] = taker->Get();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(bytes.size(), kBytes);
  }
  EXPECT_EQ(process.regions(), 2);
}

TEST_F(ProvidersTest, WhatNoWindowCanHoldIsRefusedWithTheSum) {
  PlayedProcess process(providers_.get(), SourceOf(4),
                        [](PlayedProcess&, uint32_t, wire::Entry* entry) {
                          entry->code = static_cast<uint32_t>(wire::EntryCode::kTooLarge);
                          entry->bytes = entry->record == 0 ? uint64_t{2} << 30 : 200 << 20;
                          return true;
                        });
  const auto giver = Giver();
  const auto huge = Ask(*giver, 0), over_budget = Ask(*giver, 1);
  giver->Flush();
  EXPECT_THAT(std::string(huge->Get().first.message()), HasSubstr("takes 2.0 GiB, more than 256"));
  const absl::Status status = over_budget->Get().first;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("providers"));
}

// A process that never has enough would be asked for ever.
TEST_F(ProvidersTest, AProcessThatAlwaysWantsMoreRoomIsRefusedInTheEnd) {
  PlayedProcess process(providers_.get(), SourceOf(4),
                        [](PlayedProcess&, uint32_t, wire::Entry* entry) {
                          entry->code = static_cast<uint32_t>(wire::EntryCode::kTooLarge);
                          entry->bytes = 1;
                          return true;
                        });
  const auto giver = Giver();
  const auto taker = Ask(*giver, 0);
  giver->Flush();
  const absl::Status status = taker->Get().first;
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("and that it takes 1 B"));
  EXPECT_EQ(process.regions(), 2);
}

// Every window more takes the time of a thread that makes them for all users.
TEST_F(ProvidersTest, AProcessThatWantsALittleMoreEachTimeGetsMuchMore) {
  PlayedProcess process(providers_.get(), SourceOf(4),
                        [](PlayedProcess& self, uint32_t, wire::Entry* entry) {
                          entry->code = static_cast<uint32_t>(wire::EntryCode::kTooLarge);
                          entry->bytes = self.data_bytes() + 1;
                          return self.regions() < 100;
                        });
  const auto giver = Giver();
  const auto taker = Ask(*giver, 0);
  giver->Flush();
  const absl::Status status = taker->Get().first;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(process.regions(), 40);
}

TEST_F(ProvidersTest, LargerWindowsAreMadeByAnotherThreadThanAnswersAreReadBy) {
  class Witness : public Taker {
   public:
    void Given(const absl::Status& status, absl::Span<const std::byte> bytes,
               std::shared_ptr<const void> holds) override {
      thread = std::this_thread::get_id();
      Taker::Given(status, bytes, std::move(holds));
    }
    std::thread::id thread;
  };
  PlayedProcess process(providers_.get(), SourceOf(4),
                        [](PlayedProcess& self, uint32_t window, wire::Entry* entry) {
                          if (entry->record == 0) return TenTimes(self, window, entry);
                          entry->code = static_cast<uint32_t>(wire::EntryCode::kTooLarge);
                          entry->bytes = 200 << 20;
                          return true;
                        });
  const auto giver = Giver();
  const auto read = std::make_shared<Witness>(), refused = std::make_shared<Witness>();
  giver->Ask(0, {1, 2}, read);
  giver->Flush();
  EXPECT_EQ(read->Number(), 0);
  giver->Ask(1, {1, 2}, refused);
  giver->Flush();
  EXPECT_TRUE(absl::IsResourceExhausted(refused->Get().first));
  EXPECT_NE(refused->thread, read->thread);
  EXPECT_NE(refused->thread, std::this_thread::get_id());
}

TEST_F(ProvidersTest, WhatLiesOutsideAWindowIsNeverRead) {
  std::atomic<int> turn{0};
  constexpr uint64_t kOffsets[] = {0, 64, uint64_t{1} << 63, UINT64_MAX, 5 << 20, 4097};
  PlayedProcess process(providers_.get(), SourceOf(100),
                        [&](PlayedProcess&, uint32_t, wire::Entry* entry) {
                          entry->offset = kOffsets[turn++ % std::size(kOffsets)];
                          entry->bytes = entry->record % 2 == 0 ? UINT64_MAX : 1 << 20;
                          return true;
                        });
  const auto giver = Giver();
  std::vector<std::shared_ptr<Taker>> takers;
  for (int64_t i = 0; i < 100; ++i) takers.push_back(Ask(*giver, i));
  giver->Flush();
  for (const auto& taker : takers) EXPECT_TRUE(absl::IsInvalidArgument(taker->Get().first));
}

TEST_F(ProvidersTest, AnAnswerToWhatWasNotAskedEndsTheConnection) {
  PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
  wire::Answer answer{};
  answer.header = wire::MakeHeader<wire::Answer>(wire::Type::kAnswer);
  answer.serial = 1;
  answer.entries = 1;
  process.Send(answer);
  EXPECT_TRUE(Eventually([&] {
    return providers_->List(kUser).empty() || providers_->List(kUser)[0].counts.processes == 0;
  }));
}

TEST_F(ProvidersTest, WithoutAnyProcessWhatIsAskedFailsAfterAWhile) {
  std::shared_ptr<RecordGiver> giver;
  {
    PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
    giver = Giver();
  }
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  const absl::Status status = taker->Get().first;
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no process serves source 'mine'"));
}

TEST_F(ProvidersTest, AProcessThatComesInTimeTakesOver) {
  std::shared_ptr<RecordGiver> giver;
  {
    PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
    giver = Giver();
  }
  const auto taker = Ask(*giver, 2);
  giver->Flush();
  PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_EQ(taker->Number(), 20);
  EXPECT_TRUE(giver->LookAgain().ok());
}

TEST_F(ProvidersTest, AnotherOfferIsRefusedWhileOthersServeAndReplacesThemAfterwards) {
  std::shared_ptr<RecordGiver> giver;
  {
    PlayedProcess first(providers_.get(), SourceOf(10), TenTimes);
    giver = Giver();
    PlayedProcess other(providers_.get(), SourceOf(11), TenTimes);
    EXPECT_TRUE(absl::IsAlreadyExists(other.entered().status())) << other.entered().status();
    EXPECT_THAT(std::string(other.entered().status().message()),
                HasSubstr("the number of records is 10 there and 11 here"));
  }
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 0; }));
  PlayedProcess other(providers_.get(), SourceOf(11), TenTimes);
  EXPECT_TRUE(other.entered().ok()) << other.entered().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(giver->LookAgain()));
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  EXPECT_FALSE(taker->Get().first.ok());
}

TEST_F(ProvidersTest, ASourceIsSupersededOnlyWhileNoProcessServesItAndThenNoneComesIn) {
  PlayedProcess first(providers_.get(), SourceOf(10), TenTimes);
  const auto giver = Giver();
  Provided& provided = dynamic_cast<Provided&>(*giver);
  EXPECT_FALSE(provided.SupersedeIfEmpty());
  EXPECT_TRUE(giver->LookAgain().ok());
  first.End();
  ASSERT_TRUE(Eventually([&] { return provided.processes() == 0; }));
  EXPECT_TRUE(provided.SupersedeIfEmpty());
  PlayedProcess again(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_TRUE(IsNotServed(again.entered().status())) << again.entered().status();
}

// Both would be told that they serve it, and one of them never be asked. The second one comes while
// the first one's windows are made, and its offer takes long to keep.
TEST_F(ProvidersTest, OfTwoThatBeginToServeOneNameOneIsRefused) {
  const auto providers = *Providers::Create({shares_, 1 << 20});
  for (int round = 0; round < 100; ++round) {
    Offer offer = SourceOf(11, absl::StrCat("mine", round));
    offer.source.classes.resize(200'000);
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd socket(ends[0]);
    Accepted connection;
    connection.socket = Fd(ends[1]);
    connection.peer = {kUser, kUser, getpid()};
    const auto is_begun = [&providers, name = offer.source.name] {
      const auto served = providers->List(kUser);
      return std::any_of(served.begin(), served.end(),
                         [&](const auto& one) { return one.name == name; });
    };
    auto second = std::async(std::launch::async, [&] {
      while (!is_begun()) {
      }
      return providers->Enter(std::move(connection), std::move(offer)).status();
    });
    PlayedProcess one(providers.get(), SourceOf(10, absl::StrCat("mine", round)), TenTimes);
    const absl::Status first = one.entered().status(), other = second.get();
    EXPECT_NE(first.ok(), other.ok()) << "round " << round << ": " << first << "; " << other;
  }
}

// Two ranks, each with its own part of the data, would get one another's.
TEST_F(ProvidersTest, AnotherDatasetOfTheSameFormIsRefusedUnlessAVersionAnswersForIt) {
  Offer one = SourceOf(10), other = SourceOf(10);
  one.source.contents = "a";
  other.source.contents = "b";
  PlayedProcess first(providers_.get(), one, TenTimes);
  PlayedProcess second(providers_.get(), other, TenTimes);
  EXPECT_THAT(std::string(second.entered().status().message()),
              HasSubstr("another dataset of the same kind is served there"));
  one.source.name = other.source.name = "same";
  one.source.version = other.source.version = "1";
  PlayedProcess third(providers_.get(), one, TenTimes), fourth(providers_.get(), other, TenTimes);
  EXPECT_TRUE(fourth.entered().ok()) << fourth.entered().status();
}

TEST_F(ProvidersTest, AUserHasSoManyProcessesAndSeesItsOwnAlone) {
  std::vector<std::unique_ptr<PlayedProcess>> processes;
  for (int i = 0; i < 4; ++i)
    processes.push_back(std::make_unique<PlayedProcess>(providers_.get(), SourceOf(10), TenTimes));
  PlayedProcess more(providers_.get(), SourceOf(10), TenTimes);
  EXPECT_THAT(std::string(more.entered().status().message()),
              HasSubstr("limits.providers_per_uid = 4"));
  EXPECT_TRUE(absl::IsUnavailable(providers_->Find(kUser + 1, "mine").status()));
  EXPECT_TRUE(providers_->List(kUser + 1).empty());
  processes.pop_back();
  EXPECT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 3; }));
  // Its place is free a moment later.
  EXPECT_TRUE(Eventually([&] {
    PlayedProcess again(providers_.get(), SourceOf(10), TenTimes);
    return again.entered().ok();
  }));
}

TEST_F(ProvidersTest, MemoryOfWindowsComesBack) {
  const int64_t before = shares_->whole()->planned_bytes();
  {
    PlayedProcess process(providers_.get(), SourceOf(10), TenTimes);
    EXPECT_GT(shares_->whole()->planned_bytes(), before);
  }
  EXPECT_TRUE(Eventually([&] { return shares_->whole()->planned_bytes() == before; }));
}

// The kernel tells when a client has let go of memory that it was given.
TEST_F(ProvidersTest, WindowsThatAProgramKeepsStayCounted) {
  const int64_t before = shares_->whole()->planned_bytes();
  auto process = std::make_unique<PlayedProcess>(providers_.get(), SourceOf(10), TenTimes);
  const auto giver = Giver();
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  EXPECT_EQ(taker->Number(), 10);  // it has mapped them
  process->End();
  ASSERT_TRUE(Eventually([&] { return providers_->List(kUser)[0].counts.processes == 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_GT(shares_->whole()->planned_bytes(), before + (128 << 10));
  process->Unmap();
  EXPECT_TRUE(Eventually([&] { return shares_->whole()->planned_bytes() < before + (16 << 10); }));
}

}  // namespace
}  // namespace feedwater::server
