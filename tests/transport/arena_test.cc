// The arena against a trainer that wants to write into it: every way of section "Seals" of
// server/transport/README.md is tried on the descriptor that a client gets and must be refused by
// the kernel, also for root.
#include "server/transport/arena.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <numaif.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace feedwater::server {
namespace {

constexpr int64_t kBytes = 1 << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

class ArenaTest : public ::testing::Test {
 protected:
  ArenaTest() {
    auto arena = Arena::Create(kBytes, -1, nullptr);
    EXPECT_TRUE(arena.ok()) << arena.status();
    arena_ = *std::move(arena);
    client_ = arena_->TakeClientFd();
    // Opened again for writing, as a client of the same user can through /proc.
    reopened_ =
        Fd(open(("/proc/self/fd/" + std::to_string(client_.get())).c_str(), O_RDWR | O_CLOEXEC));
  }
  std::vector<int> Descriptors() const {
    std::vector<int> all{client_.get()};
    if (reopened_) all.push_back(reopened_.get());
    return all;
  }
  void* MapReadOnly() const {
    return mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, client_.get(), 0);
  }

  std::unique_ptr<Arena> arena_;
  Fd client_, reopened_;
};

TEST_F(ArenaTest, TheClientSeesWhatTheDaemonWritesAfterTheSealing) {
  auto* seen = static_cast<const volatile unsigned char*>(MapReadOnly());
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_EQ(seen[kBytes - 1], 0);
  std::memset(arena_->data(), 0xab, kBytes);
  EXPECT_EQ(seen[0], 0xab);
  EXPECT_EQ(seen[kBytes - 1], 0xab);
  munmap(const_cast<unsigned char*>(seen), kBytes);
}

TEST_F(ArenaTest, SealsAndSizeAreWhatClientsCheck) {
  EXPECT_EQ(fcntl(client_.get(), F_GET_SEALS) & kSeals, kSeals);
  struct stat file;
  ASSERT_EQ(fstat(client_.get(), &file), 0);
  EXPECT_EQ(file.st_size, kBytes);
  EXPECT_GE(file.st_blocks * 512, kBytes) << "the arena is sparse";
  EXPECT_EQ(fcntl(client_.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST_F(ArenaTest, NoWritableMappingCanBeMade) {
  for (int fd : Descriptors()) {
    EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    void* data = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(data, MAP_FAILED);
    EXPECT_NE(mprotect(data, kBytes, PROT_READ | PROT_WRITE), 0);
    munmap(data, kBytes);
  }
}

TEST_F(ArenaTest, NoSystemCallWrites) {
  char byte = 'x';
  iovec part{&byte, 1};
  for (int fd : Descriptors()) {
    EXPECT_LT(write(fd, &byte, 1), 0);
    EXPECT_LT(pwrite(fd, &byte, 1, 0), 0);
    EXPECT_LT(pwritev(fd, &part, 1, 0), 0);
  }
  EXPECT_EQ(arena_->data()[0], std::byte{0});
}

TEST_F(ArenaTest, TheSizeIsFixedAndNoHoleCanBePunched) {
  for (int fd : Descriptors()) {
    EXPECT_NE(ftruncate(fd, kBytes / 2), 0);
    EXPECT_NE(ftruncate(fd, kBytes * 2), 0);
    EXPECT_NE(fallocate(fd, 0, 0, kBytes * 2), 0);
    EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
    EXPECT_NE(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, kBytes), 0);
  }
  const std::string path = "/proc/self/fd/" + std::to_string(client_.get());
  EXPECT_LT(open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC), 0);
}

TEST_F(ArenaTest, NoSealCanBeAdded) {
  for (int fd : Descriptors()) EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(ArenaTest, ModesStayAndALockHurtsNobody) {
  for (int fd : Descriptors()) {
    struct stat before, after;
    ASSERT_EQ(fstat(fd, &before), 0);
    EXPECT_NE(fchmod(fd, 0777), 0);
    ASSERT_EQ(fstat(fd, &after), 0);
    EXPECT_EQ(after.st_mode, before.st_mode);
    EXPECT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);  // works, so the daemon never locks an arena
    arena_->data()[7] = std::byte{7};
    EXPECT_EQ(flock(fd, LOCK_UN), 0);
  }
}

// Root's descriptor in the hands of a process without any rights, which is what a trainer of
// another user has.
TEST_F(ArenaTest, AnotherUserGetsNoFurther) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
        setresuid(kNobody, kNobody, kNobody) != 0)
      _exit(100);
    const int fd = client_.get();
    char byte = 'x';
    int attempt = 1;
    const auto must_fail = [&](bool failed) {
      if (!failed) _exit(attempt);
      ++attempt;
    };
    must_fail(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    must_fail(write(fd, &byte, 1) < 0);
    must_fail(pwrite(fd, &byte, 1, 0) < 0);
    must_fail(ftruncate(fd, kBytes / 2) != 0);
    must_fail(ftruncate(fd, kBytes * 2) != 0);
    must_fail(fallocate(fd, 0, 0, kBytes * 2) != 0);
    must_fail(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) != 0);
    must_fail(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    must_fail(fchmod(fd, 0777) != 0);
    void* data = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    must_fail(data == MAP_FAILED ? false : mprotect(data, kBytes, PROT_READ | PROT_WRITE) != 0);
    must_fail(madvise(data, kBytes, MADV_REMOVE) != 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int again = open(path, O_RDWR);  // may open: writing is what must fail
    must_fail(again < 0 || pwrite(again, &byte, 1, 0) < 0);
    must_fail(open(path, O_RDWR | O_TRUNC) < 0);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the attempt that worked";
  EXPECT_EQ(arena_->data()[0], std::byte{0});
}

TEST_F(ArenaTest, AReadOnlyMappingIsNoWayIn) {
  void* data = MapReadOnly();
  ASSERT_NE(data, MAP_FAILED);
  arena_->data()[5] = std::byte{42};
  EXPECT_NE(madvise(data, kBytes, MADV_REMOVE), 0);
  madvise(data, kBytes, MADV_DONTNEED);  // allowed: drops the client's page table only
  EXPECT_EQ(arena_->data()[5], std::byte{42});

  char byte = 'x';
  iovec from{&byte, 1}, to{data, 1};
  EXPECT_LT(process_vm_writev(getpid(), &from, 1, &to, 1, 0), 0);
  Fd memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(memory);
  EXPECT_LT(pwrite(memory.get(), &byte, 1, reinterpret_cast<off_t>(data)), 0);
  EXPECT_EQ(arena_->data()[0], std::byte{0});
  munmap(data, kBytes);
}

TEST_F(ArenaTest, TheMemoryOutlivesTheDaemonsMappingForItsClient) {
  arena_->data()[9] = std::byte{9};
  auto* seen = static_cast<const volatile unsigned char*>(MapReadOnly());
  ASSERT_NE(seen, MAP_FAILED);
  arena_.reset();
  EXPECT_EQ(seen[9], 9);
  munmap(const_cast<unsigned char*>(seen), kBytes);
}

TEST_F(ArenaTest, WhatAWorkerWritesAfterTheDaemonLetGoReachesNobody) {
  auto* seen = static_cast<const volatile unsigned char*>(MapReadOnly());
  ASSERT_NE(seen, MAP_FAILED);
  std::memset(arena_->data(), 1, kBytes);
  arena_->LetGo();
  std::memset(arena_->data(), 2, kBytes);
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[kBytes - 1], 1);
  munmap(const_cast<unsigned char*>(seen), kBytes);
}

TEST(ArenaMemory, IsPresentBeforeTheFirstWrite) {
  if (sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "pages of another size";
  auto arena = Arena::Create(64 * 4096, -1, nullptr);
  ASSERT_TRUE(arena.ok());
  // Not only allocated, but in this process's page table as well: bit 63 of the page's entry.
  Fd pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(pagemap);
  uint64_t pages[64] = {};
  const auto first = static_cast<off_t>(reinterpret_cast<uintptr_t>((*arena)->data()) / 4096 * 8);
  ASSERT_EQ(pread(pagemap.get(), pages, sizeof(pages), first), static_cast<ssize_t>(sizeof(pages)));
  for (uint64_t page : pages) EXPECT_EQ(page >> 63, 1u);
}

TEST(ArenaMemory, LiesOnTheAskedNode) {
  auto arena = Arena::Create(kBytes, 0, nullptr);
  ASSERT_TRUE(arena.ok()) << arena.status();
  int node = -1;
  if (get_mempolicy(&node, nullptr, 0, (*arena)->data(), MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    GTEST_SKIP() << "get_mempolicy: " << std::strerror(errno);
  }
  EXPECT_EQ(node, 0);
}

TEST(ArenaMemory, ANodeThatDoesNotExistIsNoError) {
  EXPECT_TRUE(Arena::Create(kBytes, 1000, nullptr).ok());
}

TEST(ArenaMemory, MoreThanTheMachineHasIsRefusedBeforeItIsTouched) {
  const auto arena = Arena::Create(int64_t{1} << 50, -1, nullptr);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted) << arena.status();
}

TEST(ArenaMemory, NoBytesAreInvalid) {
  EXPECT_EQ(Arena::Create(0, -1, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Arena::Create(-4096, -1, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ArenaMemory, WithoutDescriptorsItFailsAndGivesTheBudgetBack) {
  auto budget = MemoryBudget::Create(1 << 30);
  rlimit old_limit;
  getrlimit(RLIMIT_NOFILE, &old_limit);
  const int next = dup(0);
  close(next);
  for (int room = 0; room < 2; ++room) {  // memfd, the client's descriptor
    rlimit limit{static_cast<rlim_t>(next + room), old_limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
    const auto arena = Arena::Create(kBytes, -1, budget);
    setrlimit(RLIMIT_NOFILE, &old_limit);
    EXPECT_FALSE(arena.ok()) << room;
    EXPECT_EQ(budget->planned_bytes(), 0) << room;
  }
  EXPECT_TRUE(Arena::Create(kBytes, -1, budget).ok());
}

}  // namespace
}  // namespace feedwater::server
