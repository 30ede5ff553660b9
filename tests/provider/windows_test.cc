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
