#include "server/base/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "server/base/user_shares.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(MemoryBudget, ATermLivesAsLongAsItsReservation) {
  auto budget = MemoryBudget::Create(100 * kMiB);
  {
    auto arenas = budget->Reserve("arenas", 60 * kMiB);
    ASSERT_TRUE(arenas.ok());
    EXPECT_EQ(arenas->bytes(), 60 * kMiB);
    auto more = budget->Reserve("arenas", 10 * kMiB);
    auto index = budget->Reserve("indexes", kMiB);
    ASSERT_TRUE(more.ok() && index.ok());
    EXPECT_EQ(budget->Sum(), "arenas 70.0 MiB + indexes 1.0 MiB = 71.0 MiB of 100.0 MiB");
    more->Release();
    more->Release();  // a second time does nothing
    EXPECT_EQ(budget->planned_bytes(), 61 * kMiB);
  }
  EXPECT_EQ(budget->planned_bytes(), 0);
  EXPECT_EQ(budget->Sum(), "nothing = 0 B of 100.0 MiB");
}

TEST(MemoryBudget, RefusesWithTheWholeSum) {
  auto budget = MemoryBudget::Create(2048 * kMiB);
  auto arenas = budget->Reserve("arenas", 1228 * kMiB);
  auto indexes = budget->Reserve("indexes", 80 * kMiB);
  const absl::Status refused = budget->Reserve("arenas", 900 * kMiB).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message().substr(0, refused.message().find(';')),
            "arenas 1.2 GiB + indexes 80.0 MiB + this request (arenas) 900.0 MiB = 2.2 GiB, over "
            "the limit of 2.0 GiB");
  EXPECT_NE(refused.message().find("cure: "), absl::string_view::npos);
  EXPECT_EQ(budget->planned_bytes(), 1308 * kMiB);  // a refused request leaves nothing behind
  EXPECT_TRUE(budget->Reserve("arenas", 740 * kMiB).ok());  // exactly what is left
}

TEST(MemoryBudget, AbsurdRequestsDoNotOverflow) {
  auto budget = MemoryBudget::Create(INT64_MAX);
  auto half = budget->Reserve("a", INT64_MAX - 1);
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(budget->Reserve("b", INT64_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget->Reserve("b", -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(budget->Reserve("b", 0).ok());
}

TEST(MemoryBudget, MovingAReservationMovesItsBytes) {
  auto budget = MemoryBudget::Create(100);
  MemoryReservation kept;
  {
    auto made = budget->Reserve("a", 40);
    kept = *std::move(made);
    EXPECT_EQ(made->bytes(), 0);
  }
  EXPECT_EQ(budget->planned_bytes(), 40);
  kept = *budget->Reserve("b", 50);  // the old one is given back
  EXPECT_EQ(budget->Sum(), "b 50 B = 50 B of 100 B");
}

TEST(MemoryBudget, AReservationMayOutliveItsOwnersBudget) {
  MemoryReservation kept;
  std::weak_ptr<MemoryBudget> seen;
  {
    auto budget = MemoryBudget::Create(100);
    seen = budget;
    kept = *budget->Reserve("a", 40);
  }
  ASSERT_FALSE(seen.expired()) << "the reservation keeps it";
  EXPECT_EQ(seen.lock()->planned_bytes(), 40);
  kept.Release();
  EXPECT_EQ(kept.bytes(), 0);
  EXPECT_TRUE(seen.expired());
}

TEST(MemoryBudget, AShareIsBoundedByItselfAndByTheWhole) {
  const auto whole = MemoryBudget::Create(100);
  const auto share = MemoryBudget::CreateShare(60, whole);
  auto arena = *share->Reserve("arenas", 40);
  EXPECT_EQ(whole->Sum(), "arenas 40 B = 40 B of 100 B");
  const absl::Status over = share->Reserve("samples", 30).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(over.message(), ::testing::HasSubstr("arenas 40 B + this request (samples) 30 B"));
  EXPECT_THAT(over.message(), ::testing::HasSubstr("60 B for one user"));
  EXPECT_EQ(whole->planned_bytes(), 40);  // what was refused is not kept of the whole
  const auto others = *whole->Reserve("caches", 50);
  EXPECT_EQ(share->free_bytes(), 10);
  EXPECT_THAT(share->Reserve("samples", 20).status().message(),
              ::testing::HasSubstr("caches 50 B"));
  EXPECT_EQ(share->planned_bytes(), 40);
  arena.ShrinkTo(10);
  EXPECT_EQ(share->planned_bytes(), 10);
  EXPECT_EQ(whole->planned_bytes(), 60);
  arena.Release();
  EXPECT_EQ(share->planned_bytes(), 0);
  EXPECT_EQ(whole->planned_bytes(), 50);
}

TEST(MemoryBudget, WhatIsReservedOfAShareAloneIsNoTermOfTheWhole) {
  const auto whole = MemoryBudget::Create(100);
  const auto share = MemoryBudget::CreateShare(60, whole);
  const auto held = *share->ReserveOfShare("samples", 60);
  EXPECT_EQ(whole->planned_bytes(), 0);
  EXPECT_FALSE(share->Reserve("arenas", 1).ok());
}

TEST(UserShares, EachUserHasOne) {
  UserShares shares(MemoryBudget::Create(100));
  EXPECT_EQ(shares.Of(1), shares.whole());
  shares.Limit(50);
  auto first = *shares.Of(1)->Reserve("arenas", 40);
  EXPECT_FALSE(shares.Of(1)->Reserve("arenas", 11).ok());
  const auto other = *shares.Of(2)->Reserve("arenas", 50);
  shares.Limit(0);
  EXPECT_FALSE(shares.Of(1)->Reserve("arenas", 11).ok());  // has something
  first.Release();
  first = MemoryReservation();
  EXPECT_EQ(shares.Of(1), shares.whole());
}

TEST(MemoryBudget, ThreadsNeverExceedTheLimitTogether) {
  auto budget = MemoryBudget::Create(1000);
  std::vector<std::thread> threads;
  std::atomic<bool> exceeded = false;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        auto a = budget->Reserve("a", 400);
        auto b = budget->Reserve("b", 300);
        if (budget->planned_bytes() > 1000) exceeded = true;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(budget->planned_bytes(), 0);
}

}  // namespace
}  // namespace feedwater::server
