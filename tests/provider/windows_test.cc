// The memory that daemon and process share: larger windows, what lies outside of one, and whose
// memory it is.
#include <thread>

#include "tests/provider/played_process.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

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

// All but 1 MiB is held by what gives way once it is asked.
class ProvidersBesideIdleCaches : public ProvidersTest {
 protected:
  static constexpr int64_t kMiB = 1 << 20;

  void Hold() {
    caches_ = *shares_->whole()->Reserve("caches", shares_->whole()->free_bytes() - kMiB);
  }
  // An answer of so many bytes, where the window has room.
  static PlayedProcess::Make Gives(uint64_t bytes) {
    return [bytes](PlayedProcess& self, uint32_t, wire::Entry* entry) {
      const bool fits = self.data_bytes() >= bytes;
      entry->bytes = bytes;
      entry->offset = SharedWindows::kEntriesBytes;
      entry->code =
          static_cast<uint32_t>(fits ? wire::EntryCode::kMade : wire::EntryCode::kTooLarge);
      return true;
    };
  }

  MemoryReservation caches_;
  std::atomic<int> asked_{0};
  const std::shared_ptr<Providers> with_room_ =
      *Providers::Create({shares_, 4, [this](uint32_t user, const absl::Status& refusal) {
                            ++asked_;
                            EXPECT_EQ(user, kUser);
                            EXPECT_TRUE(RefusedMemoryOf(refusal).has_value()) << refusal;
                            caches_.Release();
                            return true;
                          }});
};

TEST_F(ProvidersBesideIdleCaches, LargerWindowsHaveTheirRoom) {
  constexpr uint64_t kBytes = 8 * kMiB;
  PlayedProcess process(with_room_.get(), SourceOf(4), Gives(kBytes));
  Hold();
  const auto giver = (*with_room_->Find(kUser, "mine")).giver;
  const auto taker = Ask(*giver, 1);
  giver->Flush();
  const auto [status, bytes] = taker->Get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(bytes.size(), kBytes);
  EXPECT_EQ(asked_, 1);
}

TEST_F(ProvidersBesideIdleCaches, AProcessThatBeginsToServeHasTheirRoom) {
  Offer offer = SourceOf(4);
  offer.source.fields[0].spec = {DType::kUInt8, Layout::kPlain, {3 * kMiB}};
  Hold();
  PlayedProcess process(with_room_.get(), offer, TenTimes);
  EXPECT_TRUE(process.entered().ok()) << process.entered().status();
  EXPECT_EQ(asked_, 1);
}

TEST_F(ProvidersBesideIdleCaches, AnOfferHasTheirRoom) {
  Offer offer = SourceOf(4);
  offer.source.classes.resize(100'000);  // more than 1 MiB
  Hold();
  PlayedProcess process(with_room_.get(), offer, TenTimes);
  EXPECT_TRUE(process.entered().ok()) << process.entered().status();
  EXPECT_EQ(asked_, 1);
}

// Memory would be of no help, and its owners would lose it.
TEST_F(ProvidersBesideIdleCaches, ProcessesThatAreTooManyTakeNothing) {
  std::vector<std::unique_ptr<PlayedProcess>> processes;
  for (int i = 0; i < 5; ++i)
    processes.push_back(std::make_unique<PlayedProcess>(with_room_.get(), SourceOf(4), TenTimes));
  EXPECT_TRUE(absl::IsResourceExhausted(processes[4]->entered().status()));
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(with_room_->Counters().at("providers_refused"), 1u);
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
