// What storage or a program owes when nobody waits for it any more, and reads that are refused
// their memory.
#include "server/pipeline/storage_reads.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

class Giver final : public RecordGiver {
 public:
  void Ask(int64_t, const ProvidedSeed&, std::weak_ptr<RecordTaker> given) override {
    taker = std::move(given);
  }
  void Flush() override {}
  absl::Status LookAgain() const override { return absl::OkStatus(); }

  std::weak_ptr<RecordTaker> taker;
};

class Client final : public StorageReads::Client {
 public:
  bool IsUnwanted(const StorageRead&) override { return is_unwanted; }
  void HeldUp(const StorageRead&, int) override {}
  void Finished(StorageRead* read) override { finished = read; }

  bool is_unwanted = false;
  StorageRead* finished = nullptr;
};

class LeftReads : public ::testing::Test {
 protected:
  LeftReads() {
    read_.giver = &giver_;
    read_.in_place = true;
    reads_.Add(&read_);
    reads_.Submit();
  }
  // The worker sleeps after that: nobody looks around again.
  void Leave() {
    client_.is_unwanted = true;
    reads_.LookAround();
    ASSERT_EQ(client_.finished, &read_);
    EXPECT_TRUE(absl::IsCancelled(read_.op.status)) << read_.op.status;
    reads_.Free(&read_);
  }
  // As a program's thread does that took hold of the taker before the reader left.
  std::weak_ptr<const void> Give(std::shared_ptr<RecordTaker> taker) {
    const auto window = std::make_shared<const int>(0);
    taker->Given(absl::OkStatus(), {}, window);
    return window;
  }

  Giver giver_;
  Client client_;
  StorageRead read_;
  StorageReads reads_{*CreateEngine("pread", {4}),
                      4,
                      std::make_shared<FileCache>(4, false),
                      nullptr,
                      0,
                      nullptr,
                      nullptr,
                      nullptr,
                      &client_};
};

TEST_F(LeftReads, WhatIsGivenAfterwardsIsLetGoAtOnce) {
  std::shared_ptr<RecordTaker> taker = giver_.taker.lock();
  ASSERT_NE(taker, nullptr);
  Leave();
  const auto window = Give(std::move(taker));
  EXPECT_TRUE(window.expired()) << "it lies in the mailbox of a reader that sleeps";
}

TEST_F(LeftReads, WhatIsTakenInTimeComesBack) {
  const auto window = Give(giver_.taker.lock());
  EXPECT_FALSE(window.expired());
  reads_.LookAround();
  ASSERT_EQ(client_.finished, &read_);
  EXPECT_TRUE(read_.op.status.ok()) << read_.op.status;
  EXPECT_FALSE(window.expired());
  reads_.Free(&read_);
  EXPECT_TRUE(window.expired());
}

// Between the reader's look at what has come and its leaving.
TEST_F(LeftReads, WhatCameAtTheLastMomentIsLetGoAtOnce) {
  std::weak_ptr<const void> window;
  const auto home = std::make_shared<Mailbox>();
  auto away = std::make_shared<AwayRead>();
  away->home = home;
  window = Give(away);
  EXPECT_FALSE(window.expired());
  home->Leave(away.get());
  away = nullptr;
  EXPECT_TRUE(window.expired());
}

// A record of 20 MiB where the budget has 4 MiB left.
class LargeReads : public ::testing::Test, public ObjectSource {
 protected:
  static constexpr int64_t kMiB = 1 << 20, kRecordBytes = 20 * kMiB;
  static constexpr uint32_t kUser = 7;

  LargeReads() {
    temp_.Write("large", std::string(kRecordBytes, 'x'));
    root_ = *temp_.AsRoot()->Find("root");
    read_.source = this;
    read_.length = kRecordBytes;
    read_.user = kUser;
  }
  const Root& root() const override { return *root_; }
  std::string ObjectPath(uint32_t) const override { return "large"; }

  // As a worker does it.
  void Read(StorageReads& reads) {
    client_.finished = nullptr;
    reads.Add(&read_);
    for (int64_t slept_ns = 0; client_.finished == nullptr;) {
      reads.Submit();
      if (client_.finished == nullptr && !reads.Await(INT64_MAX, &slept_ns)) break;
      reads.LookAround();
    }
    ASSERT_EQ(client_.finished, &read_);
  }
  std::unique_ptr<StorageReads> Reads(int64_t retry_for_ns, RoomMaker make_room) {
    return std::make_unique<StorageReads>(*CreateEngine("pread", {4}), 4,
                                          std::make_shared<FileCache>(4, false), budget_,
                                          retry_for_ns, nullptr, nullptr, make_room, &client_);
  }

  TempFolder temp_;
  std::shared_ptr<const Root> root_;
  const std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create(64 * kMiB);
  MemoryReservation caches_ = *budget_->Reserve("caches", 60 * kMiB);
  Client client_;
  StorageRead read_;
  int asked_ = 0;
};

TEST_F(LargeReads, WhatNobodyUsesMakesRoomForThem) {
  const auto reads = Reads(0, [&](uint32_t user, const absl::Status& refusal) {
    ++asked_;
    EXPECT_EQ(user, kUser);
    EXPECT_GE(RefusedMemoryOf(refusal).value_or(RefusedMemory()).bytes, kRecordBytes) << refusal;
    caches_.Release();
    return true;
  });
  Read(*reads);
  EXPECT_TRUE(read_.op.status.ok()) << read_.op.status;
  EXPECT_EQ(asked_, 1);
  reads->Free(&read_);
}

TEST_F(LargeReads, RoomIsAskedForOnceForEach) {
  constexpr int64_t kRetryForNs = 50'000'000;
  const auto reads = Reads(kRetryForNs, [&](uint32_t, const absl::Status&) {
    ++asked_;
    return true;  // it may have helped
  });
  for (int i = 1; i <= 2; ++i) {
    read_.retries = Retries();
    Read(*reads);
    EXPECT_TRUE(absl::IsResourceExhausted(read_.op.status)) << read_.op.status;
    EXPECT_GT(read_.retries.count(), 1);
    EXPECT_EQ(asked_, i);
    reads->Free(&read_);
  }
}

// It would help nobody.
TEST_F(LargeReads, NoRoomIsAskedForWithoutAUser) {
  read_.user = std::nullopt;
  const auto reads = Reads(0, [&](uint32_t, const absl::Status&) { return ++asked_ > 0; });
  Read(*reads);
  EXPECT_TRUE(absl::IsResourceExhausted(read_.op.status)) << read_.op.status;
  EXPECT_EQ(asked_, 0);
  reads->Free(&read_);
}

}  // namespace
}  // namespace feedwater::server
