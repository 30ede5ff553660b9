#include "server/cache/saver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "server/cache/cache.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

// Whether it came true; false after a minute.
template <typename Condition>
bool Await(const Condition& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

TEST(Saver, TasksWithMoreToDoTakeTurns) {
  const auto saver = Saver::Create();
  std::string steps;  // of the saver's thread
  std::atomic<bool> go{false};
  const auto step = [&](char name, int count) {
    return [&, name, left = count]() mutable {
      if (!Await([&] { return go.load(); })) return false;
      steps += name;
      return --left > 0;
    };
  };
  auto a = *saver->Add(step('a', 3)), b = *saver->Add(step('b', 3));
  std::atomic<bool> done{false};
  auto last = *saver->Add([&] {
    done = steps.size() == 6;
    return !done;
  });
  a->Wake();
  absl::SleepFor(absl::Milliseconds(1));
  b->Wake();
  last->Wake();
  go = true;
  ASSERT_TRUE(Await([&] { return done.load(); }));
  EXPECT_EQ(steps, "ababab");
}

TEST(Saver, ATaskThatEndsIsNotInTheMiddleOfAStep) {
  const auto saver = Saver::Create();
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> steps{0};
    std::atomic<bool> in_step{false};
    auto task = *saver->Add([&] {
      in_step = true;
      absl::SleepFor(absl::Microseconds(100));
      in_step = false;
      return ++steps < 1000;
    });
    task->Wake();
    if (i % 2 == 0) {
      ASSERT_TRUE(Await([&] { return steps.load() > 0; }));
    }
    task.reset();
    ASSERT_FALSE(in_step);
    const int until_then = steps;
    if (i % 20 == 0) absl::SleepFor(absl::Milliseconds(1));  // in which none may come
    ASSERT_EQ(steps, until_then);
  }
}

TEST(Saver, StepsComeByThemselvesEverySoOften) {
  const auto saver = Saver::Create();
  std::atomic<int> steps{0};
  const auto task = *saver->Add(
      [&] {
        ++steps;
        return false;
      },
      absl::Milliseconds(5));
  EXPECT_TRUE(Await([&] { return steps.load() >= 3; }));
}

int Threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

TEST(Saver, ManyDatasetsShareAThread) {
  const TempFolder folder;
  Cache cache({0, 1 << 30, folder.path(), nullptr, 1 << 30});
  const int before = Threads();
  std::vector<std::shared_ptr<RecordCache>> caches;
  std::vector<std::shared_ptr<SeekIndexStore>> stores;
  for (int i = 0; i < 40; ++i) {
    const std::string name(32, static_cast<char>('a' + i % 26));
    caches.push_back(*cache.Get({name + std::to_string(i), "bytes-1", 10, 0, 1 << 20}));
    ASSERT_NE(caches.back()->disk(), nullptr);
    stores.push_back(cache.SeekIndexesOf(name + std::to_string(i)));
  }
  EXPECT_EQ(Threads(), before + 1);
}

}  // namespace
}  // namespace feedwater::server
