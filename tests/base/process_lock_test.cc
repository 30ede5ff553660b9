// Goal: one process holds the lock at a time; one that was killed and cannot leave the kernel does
// not hold it. Method: children that take it; a zombie whose own child keeps the descriptor open
// stands for a process with a thread that waits for storage.
#include "server/base/process_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

class ProcessLockTest : public ::testing::Test {
 protected:
  ProcessLockTest() {
    char folder[] = "/tmp/feedwater-lock-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/lock";
    if (pipe(told_) != 0 || pipe(end_) != 0) abort();
  }
  ~ProcessLockTest() override {
    for (int fd : {told_[0], told_[1], end_[0], end_[1]}) close(fd);
    std::filesystem::remove_all(folder_);
  }
  // A child that takes the lock, says so, and does `then`.
  pid_t Holder(const std::function<void()>& then) {
    const pid_t child = fork();
    if (child == 0) {
      auto lock = ProcessLock::Take(path_, 0600);
      (void)!write(told_[1], lock.ok() ? "y" : "n", 1);
      then();
      _exit(0);
    }
    char said = 0;
    EXPECT_EQ(read(told_[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    return child;
  }
  std::string folder_, path_;
  int told_[2], end_[2];
};

TEST_F(ProcessLockTest, IsHeldByOneAndNamesIt) {
  const pid_t holder = Holder([] { pause(); });
  for (int i = 0; i < 3; ++i) {
    auto second = ProcessLock::Take(path_, 0600);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("pid ", holder)));
  }
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(ProcessLock::Take(path_, 0600).ok()) << "it goes with its holder";
}

TEST_F(ProcessLockTest, IsNotHeldByAProcessThatWasKilledAndHangs) {
  // The zombie's own child keeps the descriptor, and with it the kernel's lock.
  const pid_t holder = Holder([this] {
    if (fork() != 0) _exit(0);
    char byte;
    close(end_[1]);
    (void)!read(end_[0], &byte, 1);  // until the test closes its end
  });
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(holder), &info, WEXITED | WNOWAIT), 0);
  auto lock = ProcessLock::Take(path_, 0600);
  ASSERT_TRUE(lock.ok()) << lock.status();
  auto second = ProcessLock::Take(path_, 0600);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("pid ", getpid())));
  waitpid(holder, nullptr, 0);
}

TEST_F(ProcessLockTest, ALivingHolderIsNeverTakenForOneThatIsOver) {
  EXPECT_FALSE(ProcessIsOver(getpid(), ProcessStart()));
  EXPECT_FALSE(ProcessIsOver(getpid(), ProcessStart() + 1)) << "another one with its number";
  EXPECT_FALSE(ProcessIsOver(1 << 30, 1)) << "nothing is known of it";
  const pid_t stopped = fork();
  if (stopped == 0) {
    for (;;) pause();
  }
  kill(stopped, SIGSTOP);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(stopped), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_FALSE(ProcessIsOver(stopped, ProcessStart()));
  kill(stopped, SIGKILL);
  waitpid(stopped, nullptr, 0);
}

TEST_F(ProcessLockTest, GoesToOneOfManyThatComeAtOnceAfterOneThatHangs) {
  const pid_t holder = Holder([this] {
    if (fork() != 0) _exit(0);
    char byte;
    close(end_[1]);
    (void)!read(end_[0], &byte, 1);
  });
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(holder), &info, WEXITED | WNOWAIT), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    auto lock = ProcessLock::Take(path_, 0600);
    (void)!write(told_[1], lock.ok() ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  int held = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    char said = 0;
    ASSERT_EQ(read(told_[0], &said, 1), 1);
    held += said == 'y';
  }
  EXPECT_EQ(held, 1);
  for (pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  waitpid(holder, nullptr, 0);
}

}  // namespace
}  // namespace feedwater::server
