// Goal: open files stay within the limit, the one not used for longest goes first, none that is
// being read is closed, and running out of file descriptors gives the cache's up before it is an
// error.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "server/base/clock.h"
#include "server/storage/engine.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

class FileCacheTest : public ::testing::Test {
 protected:
  FileCacheTest() : root_(*folder_.AsRoot()->Find("root")) {
    for (int i = 0; i < 40; ++i) folder_.Write(std::to_string(i), std::string(i, 'x'));
  }
  std::shared_ptr<const OpenedFile> Open(FileCache& cache, int i) {
    auto file = cache.Open(*root_, std::to_string(i));
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : nullptr;
  }
  TempFolder folder_;
  std::shared_ptr<const Root> root_;
};

TEST_F(FileCacheTest, TheLeastRecentlyUsedFileIsClosedFirst) {
  FileCache cache(3, false);
  const OpenedFile* first = Open(cache, 0).get();
  Open(cache, 1);
  Open(cache, 2);
  EXPECT_EQ(Open(cache, 0).get(), first) << "a file in the cache is not opened again";
  std::weak_ptr<const OpenedFile> oldest = Open(cache, 1), newer = Open(cache, 0);
  Open(cache, 2);
  Open(cache, 0);
  Open(cache, 3);  // 1 has not been used for longest
  EXPECT_EQ(cache.open_files(), 3u);
  EXPECT_TRUE(oldest.expired());
  EXPECT_FALSE(newer.expired());
  EXPECT_EQ(Open(cache, 7)->size, 7);
}

TEST_F(FileCacheTest, AFileIsLookedAtAgainForWhoAsksLater) {
  FileCache cache(3, false);
  auto first = Open(cache, 5);
  const auto open = [&](int64_t not_before) {
    auto file = cache.Open(*root_, "5", Reach::kAnywhere, 0, not_before);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : nullptr;
  };
  EXPECT_EQ(open(MonotonicNs()), first) << "nothing has changed";
  EXPECT_TRUE(ProveUnchanged(*first).ok());

  const int64_t before = MonotonicNs();
  std::filesystem::rename(folder_ / "7", folder_ / "5");  // another file under its name
  EXPECT_EQ(open(0), first);
  EXPECT_EQ(cache.Look(*root_, "5", Reach::kAnywhere, 0)->size, 5);
  auto second = open(before);
  EXPECT_EQ(second->size, 7);
  EXPECT_EQ(open(0), second);
  EXPECT_TRUE(absl::IsFailedPrecondition(ProveUnchanged(*first)));

  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // file times move in ticks
  folder_.Write("5", "seven x");                               // in place, of the same size
  EXPECT_TRUE(absl::IsFailedPrecondition(ProveUnchanged(*second)));
  const auto looked = cache.Look(*root_, "5", Reach::kAnywhere, MonotonicNs());
  ASSERT_TRUE(looked.ok()) << looked.status();
  EXPECT_EQ(looked->size, 7);
  EXPECT_NE(looked->stamp, second->stamp);
  auto third = open(MonotonicNs());
  EXPECT_EQ(third->stamp, looked->stamp);
  EXPECT_EQ(cache.Look(*root_, "5", Reach::kAnywhere, 0)->stamp, third->stamp);

  std::filesystem::remove(folder_ / "5");
  EXPECT_EQ(open(0), third);
  EXPECT_TRUE(absl::IsNotFound(cache.Look(*root_, "5", Reach::kAnywhere, MonotonicNs()).status()));
  EXPECT_TRUE(
      absl::IsNotFound(cache.Open(*root_, "5", Reach::kAnywhere, 0, MonotonicNs()).status()));
}

TEST_F(FileCacheTest, AFileHasChangedWhenTheKernelSaysSoAndNotWhenItsTimesDo) {
  FileCache cache(3, false);
  std::filesystem::last_write_time(
      folder_ / "5", std::filesystem::file_time_type::clock::now() + std::chrono::hours(1000));
  EXPECT_LE(Open(cache, 5)->changed_ns, ClockNs(CLOCK_REALTIME));
  EXPECT_EQ(cache.Look(*root_, "5", Reach::kAnywhere, MonotonicNs())->changed_ns,
            Open(cache, 5)->changed_ns);
}

// A write moves the stamp when it begins, and may be as long as the file.
TEST_F(FileCacheTest, AFileIsSettledOnceItsLastWriteMustHaveEnded) {
  const int64_t second = 1'000'000'000;
  const auto is_settled = [&](int64_t age_ns, int64_t bytes, bool is_local) {
    OpenedFile file;
    file.changed_ns = (ClockNs(CLOCK_REALTIME) - age_ns) | 1;
    file.size = bytes;
    file.is_local = is_local;
    return IsSettled(file);
  };
  for (bool is_local : {false, true}) {
    EXPECT_FALSE(is_settled(0, 1000, is_local));
    EXPECT_EQ(is_settled(second, 1000, is_local), is_local) << "a server's clock may be behind";
    EXPECT_TRUE(is_settled(3 * second, 1000, is_local));
    EXPECT_EQ(is_settled(-second, 1000, is_local), is_local)
        << "our own clock was set back, or another's";
    EXPECT_FALSE(is_settled(45 * second, 1'000'000'000, is_local));
    EXPECT_TRUE(is_settled(53 * second, 1'000'000'000, is_local));
    EXPECT_TRUE(is_settled(120 * second, std::numeric_limits<int64_t>::max(), is_local));
  }
}

TEST_F(FileCacheTest, TimesWithoutFractionsMoveInLongTicks) {
  const int64_t now_s = ClockNs(CLOCK_REALTIME) / 1'000'000'000;
  struct stat info {};
  OpenedFile file;
  for (const auto& [age_s, is_over] : {std::pair{0, false}, {4, true}}) {
    info.st_ctim.tv_sec = now_s - age_s;
    file.changed_ns = info.st_ctim.tv_sec * 1'000'000'000;
    EXPECT_EQ(WouldShowChanges(info, true), is_over);
    EXPECT_EQ(IsSettled(file), is_over);
    AwaitClockTick(info);
    EXPECT_TRUE(WouldShowChanges(info, true));
    EXPECT_TRUE(IsSettled(file));
  }
}

TEST_F(FileCacheTest, WhatIsWrittenWithinATickOfTheLastChangeNeedNotShow) {
  struct stat info {};
  clock_gettime(CLOCK_REALTIME, &info.st_ctim);
  EXPECT_FALSE(WouldShowChanges(info, true));
  AwaitClockTick(info);
  EXPECT_TRUE(WouldShowChanges(info, true));
  info.st_ctim.tv_sec += 3600;
  EXPECT_FALSE(WouldShowChanges(info, false));
  EXPECT_TRUE(WouldShowChanges(info, true));
}

TEST_F(FileCacheTest, AFileThatIsBeingReadStaysOpen) {
  FileCache cache(2, false);
  auto a = Open(cache, 1), b = Open(cache, 2);
  {
    auto c = Open(cache, 3);  // over the limit: open while it is read, not kept
    EXPECT_EQ(cache.open_files(), 3u);
    char byte;
    EXPECT_EQ(pread(a->fd.get(), &byte, 1, 0), 1);
    EXPECT_EQ(pread(c->fd.get(), &byte, 1, 0), 1);
  }
  EXPECT_EQ(cache.open_files(), 2u);
}

TEST_F(FileCacheTest, FilesOutliveTheCache) {
  auto cache = std::make_unique<FileCache>(2, false);
  auto file = Open(*cache, 5);
  cache.reset();
  char bytes[8];
  EXPECT_EQ(pread(file->fd.get(), bytes, 8, 0), 5);
}

TEST_F(FileCacheTest, RunningOutOfDescriptorsEvictsAndThenIsAnErrorThatNamesTheCure) {
  FileCache cache(100, false);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  int next = open("/dev/null", O_RDONLY);
  ASSERT_GE(next, 0);
  close(next);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next + 8);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(cache.Open(*root_, std::to_string(i)).ok()) << i;
  }
  EXPECT_LE(cache.open_files(), 8u);
  std::vector<std::shared_ptr<const OpenedFile>> held;
  absl::Status status;
  for (int i = 0; i < 40 && status.ok(); ++i) {
    auto file = cache.Open(*root_, std::to_string(i));
    status = file.status();
    if (file.ok()) held.push_back(*file);
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("LimitNOFILE"));
}

TEST_F(FileCacheTest, ThreadsShareOneCache) {
  FileCache cache(8, false);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        int n = (i * (t + 3)) % 40;
        auto file = cache.Open(*root_, std::to_string(n));
        ASSERT_TRUE(file.ok()) << file.status();
        ASSERT_EQ((*file)->size, n);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(cache.open_files(), 8u);
}

TEST_F(FileCacheTest, WhereDirectIoIsRefusedTheFileIsOpenedWithoutIt) {
  FileCache cache(8, true);
  auto proc = Roots::Create({{"proc", "/proc"}});
  ASSERT_TRUE(proc.ok());
  auto file = cache.Open(**(*proc)->Find("proc"), "version");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE((*file)->direct_io);
}

TEST_F(FileCacheTest, FilesThatMayHangAreOpenedOnRequestAndClosedElsewhere) {
  auto calls = std::make_shared<StorageCalls>();
  FileCache cache(4, false, calls);
  const auto proc = *(*Roots::Create({{"proc", "/proc"}}))->Find("proc");
  EXPECT_TRUE(IsElsewhere(cache.Open(*proc, "version", Reach::kLocal).status()));
  auto file = cache.Open(*proc, "version", Reach::kAnywhere, 7);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE((*file)->is_local);
  EXPECT_EQ(cache.Open(*proc, "version", Reach::kLocal)->get(), file->get()) << "it is open";
  EXPECT_TRUE(Open(cache, 3)->is_local);
  cache.Forget(*proc, "version");
  EXPECT_TRUE(IsElsewhere(cache.Open(*proc, "version", Reach::kLocal).status()));
  EXPECT_EQ(cache.open_files(), 2u);
  *file = nullptr;
  calls->Stop();
  EXPECT_EQ(cache.open_files(), 1u);
}

}  // namespace
}  // namespace feedwater::server
