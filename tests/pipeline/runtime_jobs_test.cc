// Jobs of a runtime: what each gets, what is counted, which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "server/base/clock.h"
#include "server/pipeline/runtime.h"
#include "tests/pipeline/runtime_testing.h"
#include "tests/testing/plain_slot_pool.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::PlainSlotPool;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Shares, AreEqualInCpuTimeForJobsOfVeryDifferentCost) {
  const auto burn = [](int64_t ns) {
    return [ns](int64_t) {
      for (const int64_t until = ThreadCpuNs() + ns; ThreadCpuNs() < until;) {
      }
      return absl::OkStatus();
    };
  };
  auto runtime = MakeRuntime(2);
  // Batches and slots enough that no worker waits for a trainer of a loaded machine.
  std::vector<JobConfig> jobs = {FakeJob({.parse = burn(30'000)}, Yaml("{shuffle: full}"), 100),
                                 FakeJob({.parse = burn(2'000'000)}, Yaml("{shuffle: full}"), 16)};
  jobs[1].name = "run2";
  std::vector<TestRank> ranks;
  for (const JobConfig& job : jobs) ranks.push_back(AttachRank(*runtime, job, 0, 48));
  std::atomic<bool> stop{false};
  std::vector<std::thread> trainers;
  for (TestRank& rank : ranks) {
    trainers.emplace_back([&stop, &rank] {
      while (!stop) {
        if (auto event = rank.slots->Next(absl::Milliseconds(20))) rank.slots->Release(event->slot);
      }
    });
  }
  sleep(2);
  const std::vector<JobStats> stats = runtime->Snapshot();
  stop = true;
  for (std::thread& trainer : trainers) trainer.join();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_GT(stats[1].samples, 50u);
  const double ratio = stats[0].cpu_seconds / stats[1].cpu_seconds;
  EXPECT_GT(ratio, 0.6) << stats[0].cpu_seconds << " s and " << stats[1].cpu_seconds << " s";
  EXPECT_LT(ratio, 1.6) << stats[0].cpu_seconds << " s and " << stats[1].cpu_seconds << " s";
}

TEST(Stats, TellWhereTheTimeWent) {
  const auto parse = [](int64_t) {
    usleep(1000);
    return absl::OkStatus();
  };
  auto runtime = MakeRuntime(1);
  TestRank rank = AttachRank(*runtime, FakeJob({.parse = parse}, Yaml("{shuffle: full}"), 8), 0);
  for (int step = 0; step < 5; ++step) rank.Next();
  const JobStats stats = runtime->Snapshot()[0];
  EXPECT_EQ(stats.job, "run1");
  EXPECT_EQ(stats.pipeline, "test");
  EXPECT_EQ(stats.world_size, 1);
  EXPECT_GE(stats.parse_seconds, 0.03);
  EXPECT_GT(stats.run_seconds, 0);
  EXPECT_GT(stats.read_seconds + stats.read_wait_seconds, 0);
  EXPECT_GT(stats.cpu_seconds, 0);
  EXPECT_LT(stats.cpu_seconds, stats.parse_seconds + stats.run_seconds + 1);
  ASSERT_EQ(stats.ranks.size(), 1u);
  EXPECT_EQ(stats.ranks[0].pid, 1000);
  EXPECT_GE(stats.ranks[0].step, 4);
}

TEST(Attach, RefusesWhatCannotBe) {
  auto runtime = MakeRuntime(1);
  const JobConfig good = FakeJob({}, Yaml("{shuffle: full}"), 8, 2);
  const SlotLayout layout = *SlotLayout::Create(good.pipeline->plan->outputs(), 8, 1 << 20);
  const auto attach = [&](const JobConfig& job, int64_t rank, uint64_t epoch, int64_t position) {
    return runtime
        ->Attach(job, rank, 1, epoch, position, layout,
                 std::make_shared<PlainSlotPool>(2, layout.slot_bytes))
        .status();
  };
  EXPECT_THAT(attach(good, 2, 0, 0).ToString(),
              HasSubstr("INVALID_ARGUMENT: rank 2 is not in [0, 2)"));
  EXPECT_THAT(attach(good, -1, 0, 0).ToString(), HasSubstr("rank -1"));
  EXPECT_THAT(attach(good, 0, 0, 101).ToString(),
              HasSubstr("INVALID_ARGUMENT: position 101 is not in [0, 100]"));
  EXPECT_THAT(attach(good, 0, 0, -1).ToString(), HasSubstr("position -1"));
  EXPECT_THAT(attach(good, 0, ~uint64_t{0}, 0).ToString(), HasSubstr("INVALID_ARGUMENT: epoch"));
  JobConfig wrong = good;
  wrong.batch_size = 9;
  EXPECT_THAT(attach(wrong, 0, 0, 0).ToString(), HasSubstr("not laid out as"));
  wrong = good;
  wrong.world_size = 20;
  EXPECT_THAT(attach(wrong, 0, 0, 0).ToString(),
              HasSubstr("INVALID_ARGUMENT: an epoch of 100 records has no whole step of batch_size "
                        "8 * world_size 20 "
                        "= 160 samples, and `last: drop` leaves the remainder out"));
  EXPECT_TRUE(runtime->Snapshot().empty());
  EXPECT_TRUE(attach(good, 0, 0, 100).ok());
  auto seeker = AttachRank(*runtime, good, 1);
  EXPECT_EQ(runtime->Seek(seeker.stream, 1, 0, 101).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(seeker.Next().meta.serial, 0u) << "a refused seek changes nothing";
}

TEST(Create, TellsWhatIsWrong) {
  EXPECT_EQ(Runtime::Create(TestRuntimeOptions(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Runtime::Create(TestRuntimeOptions(2, "floppy")).status().ToString(),
              HasSubstr("floppy"));
  RuntimeOptions pinned = TestRuntimeOptions(2);
  pinned.pin = true;
  pinned.cpus = {0, 4095};
  EXPECT_THAT(Runtime::Create(pinned).status().ToString(), HasSubstr("4095"));
  RuntimeOptions poor = TestRuntimeOptions(2);
  poor.shares = std::make_shared<UserShares>(MemoryBudget::Create(1 << 20));
  EXPECT_EQ(Runtime::Create(poor).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Create, AndDestroyInTheMiddleOfWorkLosesNoSlot) {
  for (int round = 0; round < 20; ++round) {
    auto runtime = MakeRuntime(2, WorkingEngines().back());
    TestRank rank = AttachRank(*runtime, FakeJob({}, Yaml("{shuffle: full}"), 8), 0, 3);
    if (round % 2 == 0) rank.Next();
    runtime.reset();
    while (auto event = rank.slots->Next(absl::ZeroDuration())) rank.slots->Release(event->slot);
    EXPECT_EQ(rank.slots->free_slots(), 3);
    EXPECT_THAT(rank.slots->violations(), IsEmpty());
  }
}

}  // namespace
}  // namespace feedwater::server
