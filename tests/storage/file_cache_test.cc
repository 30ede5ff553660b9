// Goal: open files stay within the limit, the one not used for longest goes first, none that is
// being read is closed, and running out of file descriptors gives the cache's up before it is an
// error.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "gmock/gmock.h"
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
