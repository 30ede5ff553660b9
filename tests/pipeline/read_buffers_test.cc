// Buffers beyond the planned ones are paid for by the user for whom they are.
#include "server/pipeline/read_buffers.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "server/base/user_shares.h"

namespace feedwater::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(ReadBuffers, ALargeOneIsTakenFromItsUsersShare) {
  const auto whole = MemoryBudget::Create(256 * kMiB);
  UserShares shares(whole);
  shares.Limit(128 * kMiB);
  const auto one = shares.Of(1), other = shares.Of(2);
  ReadBuffers buffers(whole);
  auto first = buffers.Get(60 * kMiB, one.get());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GE(one->planned_bytes(), 60 * kMiB);
  EXPECT_EQ(other->planned_bytes(), 0);
  auto second = buffers.Get(100 * kMiB, one.get());
  EXPECT_TRUE(absl::IsResourceExhausted(second.status())) << "it is more than the user's half";
  EXPECT_TRUE(buffers.Get(100 * kMiB, other.get()).ok());
  buffers.Put(*std::move(first));
  EXPECT_EQ(one->planned_bytes(), 0);
}

TEST(ReadBuffers, ThoseThatArePlannedAreNobodys) {
  const auto whole = MemoryBudget::Create(256 * kMiB);
  UserShares shares(whole);
  shares.Limit(128 * kMiB);
  const auto one = shares.Of(1);
  ReadBuffers buffers(whole);
  auto buffer = buffers.Get(kMiB, one.get());
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(one->planned_bytes(), 0);
  const std::byte* const data = buffer->data();
  buffers.Put(*std::move(buffer));
  auto again = buffers.Get(kMiB, one.get());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->data(), data) << "it is kept for the next read";
  buffers.Put(*std::move(again));
  buffers.FreeIdle();
  ASSERT_TRUE(buffers.Get(ReadBuffers::kBaseBytes, one.get()).ok());
  EXPECT_EQ(one->planned_bytes(), 0) << "all that is planned is there again";
}

// A read that hangs keeps its buffer: with those that everybody uses it would stop the worker.
TEST(ReadBuffers, AReadThatMayHangLeavesThePlannedOnesToTheOthers) {
  const auto whole = MemoryBudget::Create(256 * kMiB);
  UserShares shares(whole);
  shares.Limit(128 * kMiB);
  const auto one = shares.Of(1), other = shares.Of(2);
  ReadBuffers buffers(whole);
  auto kept = buffers.GetForAway(kMiB, one.get());
  ASSERT_TRUE(kept.ok());
  EXPECT_GE(one->planned_bytes(), kMiB);
  ASSERT_TRUE(buffers.Get(ReadBuffers::kBaseBytes, other.get()).ok());
  EXPECT_EQ(other->planned_bytes(), 0) << "all that is planned is there";
  buffers.Put(*std::move(kept));
  EXPECT_EQ(one->planned_bytes(), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(buffers.GetForAway(200 * kMiB, one.get()).status()));
}

TEST(ReadBuffers, AFullShareStillHasHalfOfThePlannedOnes) {
  const auto whole = MemoryBudget::Create(256 * kMiB);
  UserShares shares(whole);
  shares.Limit(64 * kMiB);
  const auto one = shares.Of(1);
  const auto arena = *one->Reserve("arenas", 64 * kMiB);
  ReadBuffers buffers(whole);
  std::vector<ReadBuffers::Buffer> away;
  for (int i = 0; i < 4; ++i) {
    auto buffer = buffers.GetForAway(2 * kMiB, one.get());
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    away.push_back(*std::move(buffer));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(buffers.GetForAway(2 * kMiB, one.get()).status()));
  auto half = buffers.Get(ReadBuffers::kBaseBytes / 2, one.get());
  ASSERT_TRUE(half.ok()) << half.status();
  buffers.Put(*std::move(half));
  std::thread([&] { away.pop_back(); }).join();  // it was left to a call that has come back
  EXPECT_TRUE(buffers.GetForAway(2 * kMiB, one.get()).ok());
  for (auto& buffer : away) buffers.Put(std::move(buffer));
  buffers.FreeIdle();
  EXPECT_TRUE(buffers.Get(ReadBuffers::kBaseBytes, one.get()).ok()) << "all is there again";
}

}  // namespace
}  // namespace feedwater::server
