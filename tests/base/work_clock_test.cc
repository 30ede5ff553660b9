#include "server/base/work_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

// Looks until there is an error, or for so much CPU time.
absl::Status Work(WorkClock& clock, int64_t cpu_ms) {
  const int64_t end = ThreadCpuNs() + cpu_ms * 1'000'000;
  while (ThreadCpuNs() < end) {
    if (const absl::Status status = clock.Check(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(WorkClock, EndsWhatTakesTooMuchCpuTime) {
  WorkClock clock;
  clock.Begin(50, nullptr);
  const absl::Status status = Work(clock, 10'000);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("50 ms of CPU"));
  clock.Begin(60'000, nullptr);
  EXPECT_TRUE(Work(clock, 200).ok()) << "another sample begins anew";
}

TEST(WorkClock, TimeThatPassesIsNobodysFault) {
  WorkClock clock;
  clock.Begin(1, nullptr);
  EXPECT_TRUE(clock.Check().ok());
  usleep(300'000);
  EXPECT_TRUE(clock.Check().ok());
  usleep(100'000);
  // Sleeping costs microseconds; whatever the machine does meanwhile is not this thread's.
  EXPECT_TRUE(clock.Check().ok());
}

TEST(WorkClock, EndsWhatNobodyWants) {
  WorkClock clock;
  std::atomic<bool> gone{true};
  clock.Begin(0, &gone);
  EXPECT_TRUE(absl::IsCancelled(Work(clock, 10'000)));
}

TEST(WorkClock, EveryLookIsABeat) {
  WorkClock clock;
  EXPECT_EQ(clock.beats(), 0u);
  EXPECT_TRUE(clock.Check().ok()) << "before the first sample there is no limit";
  clock.Beat();
  EXPECT_EQ(clock.beats(), 2u);
}

}  // namespace
}  // namespace feedwater::server
