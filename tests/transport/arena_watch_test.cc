// Shared memory is counted for as long as it exists, in whatever way a client holds it.
#include "server/transport/arena_watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "server/transport/arena.h"

namespace feedwater::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 64 << 10;
constexpr uid_t kOwner = 1234;

class ArenaWatchTest : public ::testing::Test {
 protected:
  ArenaWatchTest() {
    auto watch = ArenaWatch::Create(8);
    EXPECT_TRUE(watch.ok()) << watch.status();
    watch_ = *std::move(watch);
  }

  absl::StatusOr<std::unique_ptr<Arena>> Make() {
    return Arena::Create(kBytes, -1, budget_, user_budget_, watch_.get(), kOwner);
  }
  // What a client is given; the daemon has let go of the memory.
  Fd Given() {
    auto arena = Make();
    EXPECT_TRUE(arena.ok()) << arena.status();
    return arena.ok() ? (*arena)->TakeClientFd() : Fd();
  }
  bool IsCounted() {
    watch_->Settle();
    EXPECT_EQ(budget_->planned_bytes(), watch_->held() * kBytes);
    EXPECT_EQ(user_budget_->planned_bytes(), watch_->held() * kBytes);
    EXPECT_EQ(watch_->held(kOwner), watch_->held());
    return watch_->held() > 0;
  }
  bool ComesBack() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (IsCounted()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      pollfd event{watch_->fd(), POLLIN, 0};
      poll(&event, 1, 100);
    }
    return true;
  }
  static Fd Reopened(const Fd& fd, int flags) {
    return Fd(open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), flags | O_CLOEXEC));
  }

  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create(1 << 30);
  std::shared_ptr<MemoryBudget> user_budget_ = MemoryBudget::Create(1 << 30, "user");
  std::unique_ptr<ArenaWatch> watch_;
};

TEST_F(ArenaWatchTest, MemoryThatWasNeverSentComesBackWithItsArena) {
  {
    auto arena = Make();
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_TRUE(IsCounted());
  }
  EXPECT_TRUE(ComesBack());
}

TEST_F(ArenaWatchTest, ADescriptorAMappingAndAnOPathDescriptorEachHoldIt) {
  Fd descriptor = Given();
  EXPECT_TRUE(IsCounted());
  Fd path = Reopened(descriptor, O_PATH);
  ASSERT_TRUE(path);
  void* mapping = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  descriptor = Fd();
  EXPECT_TRUE(IsCounted()) << "mapped, and O_PATH";
  munmap(mapping, kBytes);
  EXPECT_TRUE(IsCounted()) << "O_PATH alone";
  descriptor = Reopened(path, O_RDONLY);
  ASSERT_TRUE(descriptor) << "the memory can still be read";
  path = Fd();
  EXPECT_TRUE(IsCounted());
  descriptor = Fd();
  EXPECT_TRUE(ComesBack());
}

TEST_F(ArenaWatchTest, TheQueueOfASocketHoldsItAlsoOneThatNobodyHasOpen) {
  Fd descriptor = Given();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  Fd left(pair[0]), right(pair[1]);
  const int sent[] = {descriptor.get(), left.get(), right.get()};
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(sent))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(sent));
  std::memcpy(CMSG_DATA(rights), sent, sizeof(sent));
  ASSERT_EQ(sendmsg(left.get(), &message, 0), 1);
  descriptor = Fd();
  EXPECT_TRUE(IsCounted());
  left = Fd();
  right = Fd();  // they hold one another in their own queues, until the kernel collects such rings
  for (int i = 0; i < 100 && IsCounted(); ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[0]);
    close(pair[1]);  // has it look for them
    usleep(50'000);
  }
  EXPECT_TRUE(ComesBack());
}

TEST_F(ArenaWatchTest, AProcessThatInheritedItHoldsIt) {
  Fd descriptor = Given();
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    char byte;
    (void)!read(gate[0], &byte, 1);
    _exit(0);
  }
  close(gate[0]);
  descriptor = Fd();
  EXPECT_TRUE(IsCounted());
  close(gate[1]);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(ComesBack());
}

TEST_F(ArenaWatchTest, WhoLooksAtItBesidesDoesNotHoldIt) {
  Fd descriptor = Given();
  auto other = ArenaWatch::Create(1);  // a client's own inotify watch
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE((*other)->Add(descriptor.get(), {}).ok());
  descriptor = Fd();
  EXPECT_TRUE(ComesBack());
}

TEST_F(ArenaWatchTest, OneUserHasABoundedNumberOfThem) {
  std::vector<Fd> kept;
  for (int i = 0; i < 8; ++i) kept.push_back(Given());
  const auto refused = Make();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("user 1234 holds"));
  EXPECT_EQ(budget_->planned_bytes(), 8 * kBytes) << "what was refused is not counted";
  auto of_another = Arena::Create(kBytes, -1, budget_, nullptr, watch_.get(), kOwner + 1);
  EXPECT_TRUE(of_another.ok()) << of_another.status();
  of_another->reset();
  kept.clear();
  EXPECT_TRUE(ComesBack());
  EXPECT_TRUE(Make().ok());
}

// The kernel's queue of events has an end; what was lost in it is found by looking.
TEST_F(ArenaWatchTest, ManyThatEndUnseenAreFoundAllTheSame) {
  Fd held = Given();
  for (int i = 0; i < 12'000; ++i) {
    Fd file(memfd_create("feedwater-arena", MFD_CLOEXEC));
    ASSERT_TRUE(file);
    ArenaAccount account;
    account.owner = static_cast<uid_t>(10'000 + i);
    ASSERT_TRUE(watch_->Add(file.get(), std::move(account)).ok()) << i;
  }
  watch_->Settle();
  EXPECT_EQ(watch_->held(), 1);
  held = Fd();
  EXPECT_TRUE(ComesBack());
}

// In a user namespace of its own a process can set itself any limit below its users'.
TEST(ArenaWatchLimits, WhereTheKernelHasNoWatchLeftTheArenaIsRefusedWithTheCure) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0) _exit(77);
    const int limit = open("/proc/sys/user/max_inotify_watches", O_WRONLY);
    if (limit < 0 || write(limit, "0", 1) != 1) _exit(77);
    auto watch = ArenaWatch::Create(8);
    if (!watch.ok()) _exit(1);
    auto budget = MemoryBudget::Create(1 << 30);
    const auto arena = Arena::Create(kBytes, -1, budget, nullptr, watch->get(), kOwner);
    if (arena.status().code() != absl::StatusCode::kResourceExhausted) _exit(2);
    if (arena.status().message().find("fs.inotify.max_user_watches") == std::string::npos) _exit(3);
    _exit(budget->planned_bytes() == 0 ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace feedwater::server
