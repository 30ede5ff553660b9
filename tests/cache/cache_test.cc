// The daemon's caches together: shared by jobs, within their quotas, each user's part.
#include "server/cache/cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/cache/record_cache.h"
#include "server/storage/engine.h"
#include "tests/cache/payloads.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Cache, SharesOneCacheBetweenJobsAndKeepsItWhenTheyEnd) {
  TempFolder temp;
  Cache cache(
      {.memory_bytes = 8 << 20, .disk_bytes = 0, .state_dir = temp.path(), .budget = nullptr});
  const Cache::Request request{"digest", "bytes-1", 10, 8 << 20, 0};
  auto first = *cache.Get(request);
  auto second = *cache.Get(request);
  EXPECT_EQ(first, second);
  first->Put(1, kStamp, PayloadOf(1, 10));
  first = second = nullptr;
  EXPECT_EQ((*cache.Get(request))->Find(1, kStamp).where, RecordCache::Where::kMemory);
  EXPECT_NE(*cache.Get({"digest", "coefficients-1", 10, 8 << 20, 0}), *cache.Get(request));
}

TEST(Cache, ChargesTheBudgetAndGivesItBack) {
  TempFolder temp;
  auto budget = MemoryBudget::Create(1 << 30);
  {
    Cache cache(
        {.memory_bytes = 8 << 20, .disk_bytes = 0, .state_dir = temp.path(), .budget = budget});
    auto records = *cache.Get({"digest", "bytes-1", 10, 8 << 20, 0});
    records->Put(1, kStamp, PayloadOf(1, 10));
    EXPECT_GE(budget->planned_bytes(), 1 << 20);
    EXPECT_THAT(budget->Sum(), HasSubstr("caches"));
  }
  EXPECT_EQ(budget->planned_bytes(), 0);
}

TEST(Cache, TakesTheMemoryOfItsDiskFromTheUsersShare) {
  TempFolder temp;
  auto budget = MemoryBudget::Create(64 << 20);
  const auto share = MemoryBudget::CreateShare(3 << 20, budget);
  Cache cache(
      {.memory_bytes = 0, .disk_bytes = 1 << 20, .state_dir = temp.path(), .budget = budget});
  const auto on_disk = [&](const char* digest, int64_t records) {
    return (*cache.Get({digest, "bytes-1", records, 0, 1 << 20}, share))->disk() != nullptr;
  };
  EXPECT_FALSE(on_disk("too_large", 200'000)) << "16 bytes a record";
  EXPECT_EQ(share->planned_bytes(), 0);
  EXPECT_TRUE(on_disk("one", 100'000));
  EXPECT_EQ(share->planned_bytes(), 1'600'000);
  EXPECT_FALSE(on_disk("two", 100'000));
  while (cache.CloseIdle()) {
  }
  EXPECT_EQ(budget->planned_bytes(), 0);
  EXPECT_TRUE(on_disk("two", 100'000));
}

TEST(Cache, KeepsWhatIsInMemoryWhereTheDiskDoesNotWork) {
  TempFolder temp;
  auto budget = MemoryBudget::Create(64 << 20);
  const auto share = MemoryBudget::CreateShare(10, budget);  // not for the table of the disk
  Cache cache(
      {.memory_bytes = 8 << 20, .disk_bytes = 1 << 20, .state_dir = temp.path(), .budget = budget});
  const auto get = [&] { return *cache.Get({"set", "bytes-1", 10, 8 << 20, 1 << 20}, share); };
  get();
  auto records = get();
  EXPECT_EQ(records->disk(), nullptr);
  records->Put(1, kStamp, PayloadOf(1, 10));
  records = nullptr;
  EXPECT_EQ(get()->Find(1, kStamp).where, RecordCache::Where::kMemory);
}

TEST(Cache, OpensADiskThatFailedOnceMoreAndKeepsWhatIsInMemory) {
  TempFolder temp;
  Cache cache({.memory_bytes = 8 << 20,
               .disk_bytes = 1 << 20,
               .state_dir = temp.path(),
               .budget = nullptr});
  const auto get = [&] { return *cache.Get({"set", "bytes-1", 10, 8 << 20, 1 << 20}); };
  auto records = get();
  records->Put(1, kStamp, PayloadOf(1, 10));
  records->Flush();
  const int64_t used = cache.disk().used();
  EXPECT_GT(used, 0);
  while (!records->has_lost_disk())
    records->ReadFailed(1, Extent{}, absl::UnavailableError("Input/output error"));
  EXPECT_EQ(get(), records);
  EXPECT_TRUE(records->has_lost_disk()) << "it is in use";
  records = nullptr;
  records = get();
  EXPECT_FALSE(records->has_lost_disk());
  EXPECT_EQ(records->Find(1, kStamp).where, RecordCache::Where::kMemory);
  EXPECT_EQ(records->counts().disk_records, 1);
  EXPECT_EQ(cache.disk().used(), used);
  records->Put(2, kStamp, PayloadOf(2, 10));
  records->Flush();
  EXPECT_EQ(records->counts().disk_records, 2);
}

// A disk that is full for a while: files may not grow.
TEST(Cache, WritesAgainForTheNextJobWhereTheDiskWasFull) {
  TempFolder temp;
  for (const int64_t memory : {0, 8 << 20}) {
    Cache cache({.memory_bytes = memory,
                 .disk_bytes = 1 << 20,
                 .state_dir = temp / absl::StrCat(memory),
                 .budget = nullptr});
    const auto get = [&] { return *cache.Get({"set", "bytes-1", 10, memory, 1 << 20}); };
    auto records = get();
    records->Put(1, kStamp, PayloadOf(1, 10));
    records->Flush();
    const int64_t used = cache.disk().used();
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit full = {1, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    records->Put(2, kStamp, PayloadOf(2, 10));
    records->Flush();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(records->counts().disk_records, 1);
    EXPECT_EQ(cache.disk().used(), used);
    EXPECT_TRUE(records->has_lost_disk());
    EXPECT_TRUE(records->Has(1)) << "it can be read still";
    records = nullptr;
    records = get();
    EXPECT_FALSE(records->has_lost_disk());
    EXPECT_EQ(records->counts().disk_records, 1);
    EXPECT_EQ(cache.disk().used(), used) << "nothing is left of what did not arrive";
    for (const int64_t record : {2, 3}) records->Put(record, kStamp, PayloadOf(record, 10));
    records->Flush();
    // The second one has a place in memory, and none on disk.
    EXPECT_EQ(records->counts().disk_records, 3);
  }
}

TEST(Cache, ClosesAnIdleCacheWhenAnotherNeedsItsMemory) {
  Cache cache({.memory_bytes = 4 << 20, .disk_bytes = 0, .state_dir = "", .budget = nullptr});
  auto first = *cache.Get({"first", "bytes-1", 100, 4 << 20, 0});
  for (int64_t r = 0; r < 100; ++r) first->Put(r, kStamp, PayloadOf(r, 100'000));
  EXPECT_GT(first->counts().memory_bytes, 3 << 20);
  auto second = *cache.Get({"second", "bytes-1", 10, 4 << 20, 0});
  second->Put(1, kStamp, PayloadOf(1, 10));
  EXPECT_EQ(second->Find(1, kStamp).where, RecordCache::Where::kNowhere)
      << "the first one is in use";
  first = second = nullptr;
  second = *cache.Get({"third", "bytes-1", 10, 4 << 20, 0});
  second->Put(1, kStamp, PayloadOf(1, 10));
  EXPECT_EQ(second->Find(1, kStamp).where, RecordCache::Where::kMemory);
}

TEST(Cache, ClosesTheLongestUnusedWhenManyAreOpen) {
  TempFolder temp;
  auto budget = MemoryBudget::Create(1 << 30);
  Cache cache({.memory_bytes = 64 << 20,
               .disk_bytes = 64 << 20,
               .state_dir = temp.path(),
               .budget = budget});
  auto used = *cache.Get({"used", "bytes-1", 10, 1 << 20, 1 << 20});
  used->Put(1, kStamp, PayloadOf(1, 10));
  int64_t most = 0;
  for (int i = 0; i < 50; ++i) {
    auto one = *cache.Get({absl::StrCat("idle", i), "bytes-1", 10, 1 << 20, 1 << 20});
    if (i == 20) most = budget->planned_bytes();
    if (i > 20) {
      EXPECT_LE(budget->planned_bytes(), most);
    }
  }
  EXPECT_LE(cache.Statuses().size(), 16u);
  EXPECT_EQ(*cache.Get({"used", "bytes-1", 10, 1 << 20, 1 << 20}), used);
  EXPECT_EQ(used->Find(1, kStamp).where, RecordCache::Where::kMemory);
}

// One user fills what it may have; the next one finds room, and what it left idle stays as long as
// the first one has something to give.
TEST(Cache, LeavesTheNextUserItsPart) {
  Cache cache({.memory_bytes = 4 << 20, .disk_bytes = 0, .state_dir = "", .budget = nullptr});
  cache.LimitUsers(2);
  const auto request = [](const char* digest, uid_t user) {
    return Cache::Request{digest, "bytes-1", 100, 4 << 20, 0, user};
  };
  const auto fill = [](RecordCache* records) {
    for (int64_t r = 0; r < 100; ++r) records->Put(r, kStamp, PayloadOf(r, 100'000));
  };
  const auto has = [](const RecordCache& records) {
    return records.Find(0, kStamp).where == RecordCache::Where::kMemory;
  };
  auto greedy = *cache.Get(request("large", 7));
  fill(greedy.get());
  EXPECT_LE(cache.memory().used(), 2 << 20);
  fill(cache.Get(request("mine", 8))->get());
  for (const char* digest : {"another", "third"}) {
    greedy = nullptr;
    greedy = *cache.Get(request(digest, 7));
    fill(greedy.get());
    EXPECT_TRUE(has(*greedy)) << "instead of its own idle one";
    EXPECT_TRUE(has(**cache.Get(request("mine", 8))));
  }
  cache.LimitUsers(1);
  greedy = nullptr;
  greedy = *cache.Get(request("fourth", 7));
  fill(greedy.get());
  EXPECT_GT(greedy->counts().memory_bytes, 2 << 20);
  EXPECT_FALSE(has(**cache.Get(request("mine", 8)))) << "it was idle, and its room was wanted";
}

TEST(Cache, ClosesIdleOnesOfTheUserWhoHasMost) {
  Cache cache({.memory_bytes = 64 << 20, .disk_bytes = 0, .state_dir = "", .budget = nullptr});
  const auto open = [&](const std::string& digest, uid_t user) {
    return *cache.Get({digest, "bytes-1", 10, 1 << 20, 0, user});
  };
  open("first", 7)->Put(1, kStamp, PayloadOf(1, 10));
  for (int i = 0; i < 50; ++i) open(absl::StrCat("other", i), 8);
  EXPECT_EQ(open("first", 7)->Find(1, kStamp).where, RecordCache::Where::kMemory);
}

TEST(Cache, DeletesUnusedFoldersOfTheUserWhoHasMost) {
  TempFolder temp;
  Cache cache(
      {.memory_bytes = 0, .disk_bytes = 250'000, .state_dir = temp.path(), .budget = nullptr});
  const auto fill = [&](const std::string& digest, uid_t user) {
    auto records = *cache.Get({digest, "bytes-1", 20, 0, 250'000, user});
    for (int64_t r = 0; r < 20; ++r) records->Put(r, kStamp, PayloadOf(r, 2500));
    records->Flush();
    return records->counts().disk_records;
  };
  fill("first", 7);  // the longest unused of all
  for (int i = 0; i < 20; ++i) fill(absl::StrCat("other", i), 8);
  EXPECT_EQ((*cache.Get({"first", "bytes-1", 20, 0, 250'000, 7}))->counts().disk_records, 20);
}

TEST(Cache, OfASmallDatasetLeavesTheMemoryToOthers) {
  Cache cache({.memory_bytes = 4 << 20, .disk_bytes = 0, .state_dir = "", .budget = nullptr});
  std::vector<std::shared_ptr<RecordCache>> caches;
  for (const char* digest : {"a", "b", "c", "d"}) {
    caches.push_back(*cache.Get({digest, "bytes-1", 10, 4 << 20, 0}));
    caches.back()->Put(1, kStamp, PayloadOf(1, 10));
    EXPECT_EQ(caches.back()->Find(1, kStamp).where, RecordCache::Where::kMemory) << digest;
  }
}

TEST(Cache, KeepsOnDiskNoMoreThanOneMay) {
  TempFolder temp;
  Cache cache(
      {.memory_bytes = 0, .disk_bytes = 1 << 20, .state_dir = temp.path(), .budget = nullptr});
  auto records = *cache.Get({"digest", "bytes-1", 40, 0, 20'000});
  for (int64_t r = 0; r < 40; ++r) records->Put(r, kStamp, PayloadOf(r, 1500));
  records->Flush();
  EXPECT_GT(records->counts().disk_records, 8);
  EXPECT_LE(records->counts().disk_bytes, 20'000);
  EXPECT_EQ(cache.disk().used(), records->counts().disk_bytes);
}

// After a restart the folders of several datasets are there. Opening one, which may take all of the
// disk, does not cost the others what they have before the room is really needed.
TEST(Cache, LeavesUnusedFoldersAloneWhileThereIsRoom) {
  TempFolder temp;
  const Cache::Options options{
      .memory_bytes = 0, .disk_bytes = 200'000, .state_dir = temp.path(), .budget = nullptr};
  const auto request = [](const char* digest) {
    return Cache::Request{digest, "bytes-1", 40, 0, 200'000};
  };
  {
    Cache cache(options);
    for (const char* digest : {"one", "two"}) {
      auto records = *cache.Get(request(digest));
      for (int64_t r = 0; r < 40; ++r) records->Put(r, kStamp, PayloadOf(r, 1500));
      records->Flush();
    }
  }
  Cache cache(options);
  const int64_t used = cache.disk().used();
  EXPECT_GT(used, 120'000);
  for (const char* digest : {"one", "two"})
    EXPECT_EQ((*cache.Get(request(digest)))->counts().disk_records, 40) << digest;
  EXPECT_EQ(cache.disk().used(), used);
}

TEST(Cache, DeletesUnusedFoldersWhenItsDiskHasBecomeSmaller) {
  TempFolder temp;
  const auto options = [&](int64_t disk) {
    return Cache::Options{
        .memory_bytes = 0, .disk_bytes = disk, .state_dir = temp.path(), .budget = nullptr};
  };
  {
    Cache cache(options(1 << 20));
    auto records = *cache.Get({"one", "bytes-1", 40, 0, 1 << 20});
    for (int64_t r = 0; r < 40; ++r) records->Put(r, kStamp, PayloadOf(r, 1500));
  }
  Cache cache(options(10'000));
  EXPECT_EQ(cache.disk().used(), 0);
  EXPECT_FALSE(fs::exists(temp.path() + "/cache/one-bytes-1"));
}

TEST(Cache, DeletesTheLongestUnusedFolderWhenTheDiskIsWanted) {
  TempFolder temp;
  const auto fill = [&](const std::string& digest) {
    Cache cache(
        {.memory_bytes = 0, .disk_bytes = 100'000, .state_dir = temp.path(), .budget = nullptr});
    auto records = *cache.Get({digest, "bytes-1", 40, 0, 100'000});
    for (int64_t r = 0; r < 40; ++r) records->Put(r, kStamp, PayloadOf(r, 1500));
    records->Flush();
    EXPECT_GT(records->counts().disk_records, 30) << digest;
  };
  fill("one");
  EXPECT_TRUE(fs::exists(temp.path() + "/cache/one-bytes-1"));
  fill("two");
  EXPECT_FALSE(fs::exists(temp.path() + "/cache/one-bytes-1"));
  EXPECT_TRUE(fs::exists(temp.path() + "/cache/two-bytes-1"));
}

TEST(Cache, ClosesAnIdleCacheWhenAnotherNeedsItsDisk) {
  TempFolder temp;
  Cache cache(
      {.memory_bytes = 0, .disk_bytes = 100'000, .state_dir = temp.path(), .budget = nullptr});
  const auto fill = [&](RecordCache& records) {
    for (int64_t r = 0; r < 40; ++r) records.Put(r, kStamp, PayloadOf(r, 2500));
    records.Flush();
    return records.counts().disk_records;
  };
  auto one = *cache.Get({"one", "bytes-1", 40, 0, 100'000, 7});
  EXPECT_GT(fill(*one), 30);
  EXPECT_EQ(fill(**cache.Get({"two", "bytes-1", 40, 0, 100'000, 8})), 0) << "the first is in use";
  one = nullptr;
  EXPECT_GT(fill(**cache.Get({"three", "bytes-1", 40, 0, 100'000, 8})), 30);
  EXPECT_FALSE(fs::exists(temp.path() + "/cache/one-bytes-1"));
}

// FileCache keeps descriptors after a job.
TEST(Cache, GivesTheDiskBackOfFilesThatAreOpenStill) {
  TempFolder temp;
  Cache cache(
      {.memory_bytes = 0, .disk_bytes = 100'000, .state_dir = temp.path(), .budget = nullptr});
  FileCache files(4, /*direct_io=*/false);
  const auto fill = [&](const char* digest) {
    auto records = *cache.Get({digest, "bytes-1", 100, 0, 100'000});
    for (int64_t r = 0; r < 40; ++r) records->Put(r, kStamp, PayloadOf(r, 2000));
    records->Flush();
    return files.Open(records->disk()->root(), records->disk()->ObjectPath(0));
  };
  const auto open = fill("one");
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_GT((*open)->size, 0);
  cache.CloseIdle();
  ASSERT_TRUE(fill("two").ok());
  struct stat info;
  ASSERT_EQ(fstat((*open)->fd.get(), &info), 0);
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_EQ(info.st_blocks, 0);
}

TEST(Cache, LeavesNoFolderWithoutBlocks) {
  TempFolder temp;
  const Cache::Options options{
      .memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .state_dir = temp.path(), .budget = nullptr};
  {
    Cache cache(options);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(cache.Get({absl::StrCat("set-", i), "bytes-1", 10, 0, 1 << 20}).ok());
    }
  }
  const Cache next(options);
  const std::filesystem::directory_iterator entries(temp.path() + "/cache");
  const auto folders = std::count_if(begin(entries), end(entries),
                                     [](const auto& entry) { return entry.is_directory(); });
  EXPECT_EQ(folders, 0);
}

// The state folder may be one where others keep files, under cache/ too.
TEST(Cache, FoldersOfOthersStayAndDoNotCount) {
  TempFolder temp;
  const std::string name(32, 'a'), bytes(20'000, 'x');
  const auto options = [&](int64_t disk) {
    return Cache::Options{
        .memory_bytes = 0, .disk_bytes = disk, .state_dir = temp.path(), .budget = nullptr};
  };
  {
    Cache cache(options(1 << 20));
    for (const char* digest : {"one", "two"}) {
      auto records = *cache.Get({digest, "bytes-1", 40, 0, 1 << 20});
      for (int64_t r = 0; r < 40; ++r) records->Put(r, kStamp, PayloadOf(r, 1500));
      records->Flush();
    }
  }
  fs::create_directories(temp / "cache/empty");
  const std::vector<std::string> theirs = {
      "huggingface/hub/model.safetensors",
      "empty-with-one/segment-00000",  // as ours is called, in a folder that is not
      "journals/journal",
      name + "/segment-00000",
      name + "-bytes/notes.txt",
      name + "-bytes/segment-00000",
      "two-bytes-1/notes.txt",
      "loose.bin"};
  for (const std::string& file : theirs) temp.Write("cache/" + file, bytes);
  fs::create_directory_symlink(temp / "cache/huggingface", temp / ("cache/" + name + "-link"));
  // Ours: a kill came before the journal, or before its first bytes, or cut it.
  fs::create_directories(temp / ("cache/" + name + "-1"));
  temp.Write("cache/" + name + "-2/journal", "");
  temp.Write("cache/" + name + "-3/journal", "FW");
  temp.Write("cache/" + name + "-3/segment-00000", bytes);

  Cache cache(options(60'000));  // less than there is: one or two of ours go
  EXPECT_LE(cache.disk().used(), 60'000);
  while (cache.disk().used() > 0) {
    auto records = *cache.Get({"three", "bytes-1", 60, 0, 60'000});
    for (int64_t r = 0; r < 60; ++r) records->Put(r, kStamp, PayloadOf(r, 1500));
    records->Flush();
    if (!fs::exists(temp / "cache/one-bytes-1") && records->counts().disk_records > 30) break;
  }
  for (const std::string& file : theirs) {
    ASSERT_TRUE(fs::exists(temp / ("cache/" + file))) << file;
    EXPECT_EQ(fs::file_size(temp / ("cache/" + file)), bytes.size()) << file;
  }
  EXPECT_TRUE(fs::exists(temp / "cache/empty"));
  EXPECT_TRUE(fs::is_symlink(temp / ("cache/" + name + "-link")));
  for (const char* end : {"-1", "-2", "-3"})
    EXPECT_FALSE(fs::exists(temp / ("cache/" + name + end))) << end;
  EXPECT_FALSE(fs::exists(temp / "cache/one-bytes-1"));
  EXPECT_FALSE(fs::exists(temp / "cache/two-bytes-1/segment-00000"));
}

// A disk that stands still: the segment is a FIFO, and opening it waits for a reader.
TEST(Cache, LetsNobodyElseWaitWhileOneIsClosed) {
  TempFolder temp;
  const Cache::Options options{
      .memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .state_dir = temp.path(), .budget = nullptr};
  const auto request = [](const char* digest) {
    return Cache::Request{digest, "bytes-1", 10, 1 << 20, 1 << 20};
  };
  { ASSERT_TRUE(Cache(options).Get(request("one")).ok()); }
  const std::string segment = temp.path() + "/cache/one-bytes-1/segment-00000";
  ASSERT_EQ(mkfifo(segment.c_str(), 0600), 0);

  Cache cache(options);
  (*cache.Get(request("one")))->Put(1, kStamp, PayloadOf(1, 10));
  const auto get = [&](const char* digest) {
    return std::async(std::launch::async,
                      [&cache, &request, digest] { return cache.Get(request(digest)).ok(); });
  };
  std::future<bool> second = get("two");  // closes the first for its memory
  while (cache.Statuses().size() > 0) usleep(1000);
  std::future<bool> again = get("one");
  auto statuses = std::async(std::launch::async, [&] { return cache.Statuses().size(); });
  EXPECT_EQ(statuses.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(again.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout)
      << "its folder is being closed";
  const Fd reader(open(segment.c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_TRUE(second.get());
  EXPECT_TRUE(again.get());
  EXPECT_GE(cache.Statuses().size(), 1u) << "whoever came last may have closed the other";
}

TEST(Cache, LeavesTheDiskToTheDaemonThatHasIt) {
  TempFolder temp;
  const Cache::Options options{
      .memory_bytes = 0, .disk_bytes = 1 << 20, .state_dir = temp.path(), .budget = nullptr};
  Cache first(options), second(options);
  EXPECT_EQ(first.no_disk(), "");
  EXPECT_THAT(second.no_disk(), HasSubstr("another daemon"));
  auto records = *second.Get({"digest", "bytes-1", 10, 0, 1 << 20});
  EXPECT_EQ(records->disk(), nullptr);
}

}  // namespace
}  // namespace feedwater::server
