// Which sample a process died of: found in what it left behind, for faults and for nothing else.
#include "server/pipeline/breadcrumbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using ::testing::IsEmpty;

constexpr char kDataset[] = "0123456789abcdef0123456789abcdef";

class BreadcrumbsTest : public ::testing::Test {
 protected:
  // A child with two workers, of which one does `work` at record 17 while the other is busy too.
  // Gives what the next process finds.
  std::vector<Breadcrumbs::Crash> AfterDying(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      std::vector<Breadcrumbs::Crash> before;
      auto crumbs = Breadcrumbs::Open(temp_.path(), 2, &before);
      if (!crumbs.ok()) _exit(77);
      NoteFaults();
      std::thread other([&] {
        const CrumbOfThisThread mine((*crumbs)->crumb(0));
        (*crumbs)->crumb(0)->Enter(kDataset, 3, 0, 0, "dog/3.jpg");
        for (;;) pause();
      });
      std::thread dying([&] {
        const CrumbOfThisThread mine((*crumbs)->crumb(1));
        while ((*crumbs)->crumb(0)->working == 0) usleep(100);
        (*crumbs)->crumb(1)->Enter(kDataset, 17, 64, 1234, "cat/17.jpg");
        work();
        (*crumbs)->crumb(1)->Leave();
      });
      dying.join();
      _exit(0);
    }
    waitpid(child, &status_, 0);
    return Found();
  }
  std::vector<Breadcrumbs::Crash> Found(size_t workers = 2) {
    std::vector<Breadcrumbs::Crash> crashes;
    auto crumbs = Breadcrumbs::Open(temp_.path(), workers, &crashes);
    EXPECT_TRUE(crumbs.ok()) << crumbs.status();
    return crashes;
  }

  TempFolder temp_;
  int status_ = 0;
};

int Overflow(volatile int* depth) {  // of the stack
  volatile char room[4096];
  room[0] = static_cast<char>(*depth);
  *depth = *depth + 1;
  if (*depth < 0) return 0;
  return Overflow(depth) + room[0];
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // faults end in the sanitizer's own report and exit status
#else
constexpr bool kSanitized = false;
#endif

TEST_F(BreadcrumbsTest, AFaultIsNotedWithTheSampleThatItCameFrom) {
  const std::vector<std::pair<int, std::function<void()>>> faults = {
      {SIGSEGV,
       [] {
         volatile uintptr_t nowhere = 8;
         *reinterpret_cast<volatile int*>(nowhere) = 1;
       }},
      {SIGABRT, [] { abort(); }},
      {SIGILL, [] { __builtin_trap(); }},
      {SIGSEGV, [] { raise(SIGSEGV); }},
  };
  for (const auto& [signal, work] : faults) {
    SCOPED_TRACE(strsignal(signal));
    const auto crashes = AfterDying(work);
    if (!kSanitized) {
      EXPECT_TRUE(WIFSIGNALED(status_) && (WTERMSIG(status_) == signal || signal == SIGILL))
          << "it dies as it would have";
    }
    ASSERT_EQ(crashes.size(), 1u);
    EXPECT_EQ(crashes[0].dataset, kDataset);
    EXPECT_EQ(crashes[0].record, 17);
    EXPECT_EQ(crashes[0].offset, 64);
    EXPECT_EQ(crashes[0].length, 1234);
    EXPECT_EQ(crashes[0].path, "cat/17.jpg");
    if (signal != SIGILL) {  // which of two it is depends on the processor
      EXPECT_EQ(crashes[0].signal, signal);
    }
    EXPECT_THAT(Found(), IsEmpty()) << "told once";
  }
}

TEST_F(BreadcrumbsTest, AnOverflowOfTheStackIsNoted) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have a stack of their own for this";
  const auto crashes = AfterDying([] {
    volatile int depth = 0;
    Overflow(&depth);
  });
  ASSERT_EQ(crashes.size(), 1u);
  EXPECT_EQ(crashes[0].signal, SIGSEGV);
}

TEST_F(BreadcrumbsTest, AKillBlamesNoSample) {
  EXPECT_THAT(AfterDying([] { kill(getpid(), SIGKILL); }), IsEmpty());
  EXPECT_TRUE(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL);
  EXPECT_THAT(AfterDying([] {
                kill(getpid(), SIGABRT);  // as a watchdog does
                for (;;) pause();
              }),
              IsEmpty());
  EXPECT_TRUE(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGABRT);
  EXPECT_THAT(AfterDying([] { _exit(3); }), IsEmpty());
  EXPECT_THAT(AfterDying([] {}), IsEmpty());
}

TEST_F(BreadcrumbsTest, AFileOfAnybodyElseIsMadeAnew) {
  const uint32_t seed = feedwater::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("FEEDWATER_TEST_SEED=", seed));
  std::mt19937 random(seed);
  const std::string path = temp_.path() + "/breadcrumbs";
  for (int round = 0; round < 200; ++round) {
    std::string bytes(random() % 4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 2 == 0) bytes.replace(0, std::min<size_t>(8, bytes.size()), "FWCRUMB1", 8);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    for (const Breadcrumbs::Crash& crash : Found(1 + random() % 16)) {
      EXPECT_LE(crash.path.size(), 448u);
      EXPECT_GE(crash.record, 0);
    }
    EXPECT_THAT(Found(), IsEmpty());
  }
}

TEST_F(BreadcrumbsTest, ASecondDaemonIsToldToTakeAnotherFolder) {
  std::vector<Breadcrumbs::Crash> crashes;
  const auto first = Breadcrumbs::Open(temp_.path(), 2, &crashes);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Breadcrumbs::Open(temp_.path(), 2, &crashes);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BreadcrumbsTest, ALongPathIsCut) {
  std::vector<Breadcrumbs::Crash> crashes;
  const auto crumbs = Breadcrumbs::Open(temp_.path(), 1, &crashes);
  ASSERT_TRUE(crumbs.ok());
  Breadcrumb* const crumb = (*crumbs)->crumb(0);
  crumb->Enter("short", 1, 2, 3, std::string(5000, 'p'));
  EXPECT_EQ(std::string(crumb->path), std::string(447, 'p'));
  crumb->Leave();
  EXPECT_EQ(crumb->working, 0u);
}

}  // namespace
}  // namespace feedwater::server
