// What storage or a program owes when nobody waits for it any more.
#include "server/pipeline/storage_reads.h"

#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace feedwater::server
