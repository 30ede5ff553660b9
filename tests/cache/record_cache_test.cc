// What is kept of records in memory and on disk: that it comes back as it was put, that damage is
// found and never taken for a payload, and that room is obeyed.
#include "server/cache/record_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/cache/cache.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kStamp = 77;

// A payload that follows from the record's number alone.
std::vector<std::byte> PayloadOf(int64_t record, size_t bytes) {
  std::mt19937 random(static_cast<uint32_t>(record + 1));
  std::vector<std::byte> payload(bytes);
  for (std::byte& b : payload) b = static_cast<std::byte>(random());
  return payload;
}
size_t SizeOf(int64_t record) { return static_cast<size_t>(record * 977 % 5000); }

class RecordCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<RecordCache> Open(int64_t records, int64_t memory, int64_t disk) {
    memory_quota_ = std::make_shared<ByteQuota>(memory);
    disk_quota_ = std::make_shared<ByteQuota>(disk);
    RecordCache::Options options;
    options.records = records;
    options.memory_limit = memory;
    options.memory_quota = memory_quota_;
    options.disk_limit = disk;
    options.disk_quota = disk_quota_;
    options.identity = identity_;
    if (disk > 0) options.folder = Folder();
    absl::StatusOr<std::unique_ptr<RecordCache>> cache = RecordCache::Open(std::move(options));
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  std::string Folder() const { return temp_.path() + "/cache"; }

  // What the cache has of a record; empty optional when it has nothing.
  std::optional<std::vector<std::byte>> Get(RecordCache& cache, int64_t record,
                                            uint64_t stamp = kStamp) {
    const RecordCache::Found found = cache.Find(record, stamp);
    absl::Span<const std::byte> payload;
    std::vector<std::byte> read;
    switch (found.where) {
      case RecordCache::Where::kNowhere:
        return std::nullopt;
      case RecordCache::Where::kMemory:
        payload = found.block.payload;
        break;
      case RecordCache::Where::kDisk: {
        absl::StatusOr<Fd> file =
            cache.disk()->root().OpenFile(cache.disk()->ObjectPath(found.extent.object), false);
        EXPECT_TRUE(file.ok()) << file.status();
        read.resize(static_cast<size_t>(found.extent.length));
        EXPECT_EQ(pread(file->get(), read.data(), read.size(), found.extent.offset),
                  found.extent.length);
        absl::StatusOr<BlockView> block = cache.TakeFromDisk(record, stamp, found.extent, read);
        if (!block.ok()) {
          last_error_ = block.status();
          return std::nullopt;
        }
        payload = block->payload;
      }
    }
    return std::vector<std::byte>(payload.begin(), payload.end());
  }

  TempFolder temp_;
  std::string identity_ = "dataset-form";
  std::shared_ptr<ByteQuota> memory_quota_, disk_quota_;
  absl::Status last_error_;
};

TEST_F(RecordCacheTest, GivesBackWhatWasPutInMemory) {
  auto cache = Open(1000, 8 << 20, 0);
  for (int64_t r = 0; r < 1000; ++r) {
    EXPECT_FALSE(Get(*cache, r).has_value());
    EXPECT_TRUE(cache->Wants(r, kStamp));
    cache->Put(r, kStamp, PayloadOf(r, SizeOf(r)));
    EXPECT_FALSE(cache->Wants(r, kStamp));
  }
  for (int64_t r = 0; r < 1000; ++r) EXPECT_EQ(Get(*cache, r), PayloadOf(r, SizeOf(r))) << r;
  EXPECT_EQ(cache->counts().memory_records, 1000);
  EXPECT_EQ(cache->counts().memory_hits, 1000u);
  EXPECT_EQ(cache->counts().misses, 1000u);
}

TEST_F(RecordCacheTest, ATableThatFindsNoRoomLeavesTheCacheWithoutThatTier) {
  auto cache = Open(1 << 20, 1 << 20, 0);  // 8 MiB of places
  EXPECT_FALSE(cache->has_memory());
  EXPECT_EQ(memory_quota_->used(), 0);
  EXPECT_FALSE(cache->Wants(7, kStamp));
  cache->Put(7, kStamp, PayloadOf(7, 100));
  EXPECT_FALSE(Get(*cache, 7).has_value());
  EXPECT_EQ(cache->counts().misses, 1u);
}

TEST_F(RecordCacheTest, ALimitThatIsRaisedLetsMoreIn) {
  memory_quota_ = std::make_shared<ByteQuota>(8 << 20);
  RecordCache::Options options;
  options.records = 1000;
  options.memory_limit = 4096;
  options.memory_quota = memory_quota_;
  auto opened = RecordCache::Open(std::move(options));
  ASSERT_TRUE(opened.ok());
  RecordCache& cache = **opened;
  const auto put = [&] {
    int64_t kept = 0;
    for (int64_t r = 0; r < 1000; ++r) {
      cache.Put(r, kStamp, PayloadOf(r, 1000));
      kept += Get(cache, r).has_value();
    }
    return kept;
  };
  EXPECT_LE(put(), 4);
  cache.RaiseLimits(1024, 0);
  EXPECT_LE(put(), 4) << "less than before changes nothing";
  cache.RaiseLimits(4 << 20, 0);
  EXPECT_EQ(put(), 1000);
}

// The users' parts change with a reload, and others give back what they have.
TEST_F(RecordCacheTest, TheNextJobTriesAFullCacheAgain) {
  auto cache = Open(1000, 8 << 20, 0);
  memory_quota_->SetLimit(64 << 10);
  const auto put = [&] {
    int64_t kept = 0;
    for (int64_t r = 0; r < 1000; ++r) {
      cache->Put(r, kStamp, PayloadOf(r, 1000));
      kept += Get(*cache, r).has_value();
    }
    return kept;
  };
  EXPECT_LT(put(), 100);
  memory_quota_->SetLimit(8 << 20);
  EXPECT_LT(put(), 100) << "a job that runs does not ask again and again";
  cache->RaiseLimits(4 << 20, 0);
  EXPECT_EQ(put(), 1000);
}

TEST_F(RecordCacheTest, KeepsNoMoreThanItMayAndLeavesWhatItHas) {
  auto cache = Open(10'000, 1 << 20, 0);
  int64_t kept = 0;
  for (int64_t r = 0; r < 10'000; ++r) {
    cache->Put(r, kStamp, PayloadOf(r, 1000));
    kept += Get(*cache, r).has_value();
  }
  EXPECT_GT(kept, 850) << "beside the table of records, which counts";
  EXPECT_LE(kept * 1000, 1 << 20);
  EXPECT_LE(memory_quota_->used(), memory_quota_->limit());
  for (int64_t r = 0; r < kept; ++r) EXPECT_EQ(Get(*cache, r), PayloadOf(r, 1000)) << r;
  EXPECT_FALSE(cache->Wants(9'999, kStamp));
  cache.reset();
  EXPECT_EQ(memory_quota_->used(), 0);
}

TEST_F(RecordCacheTest, IsFullAgainAfterARestartAndMovesIntoMemory) {
  {
    auto cache = Open(500, 0, 64 << 20);
    for (int64_t r = 0; r < 500; ++r) cache->Put(r, kStamp, PayloadOf(r, SizeOf(r)));
    cache->Flush();
    EXPECT_EQ(cache->counts().disk_records, 500);
  }
  auto cache = Open(500, 8 << 20, 64 << 20);
  EXPECT_EQ(cache->counts().disk_records, 500);
  for (int64_t r = 0; r < 500; ++r) {
    EXPECT_EQ(cache->Find(r, kStamp).where, RecordCache::Where::kDisk);
    EXPECT_EQ(Get(*cache, r), PayloadOf(r, SizeOf(r))) << r;
    EXPECT_EQ(cache->Find(r, kStamp).where, RecordCache::Where::kMemory);
    EXPECT_EQ(Get(*cache, r), PayloadOf(r, SizeOf(r))) << r;
  }
}

// The same in memory and on disk: another state of a file is another file.
TEST_F(RecordCacheTest, DoesNotFindWhatWasKeptFromAnotherStateOfTheFile) {
  for (const int64_t memory : {0, 1 << 20}) {
    fs::remove_all(Folder());
    auto cache = Open(2, memory, 1 << 20);
    cache->Put(0, kStamp, PayloadOf(0, 100));
    cache->Put(1, kStamp, PayloadOf(1, 100));
    cache->Flush();
    const auto expect_old = [&] {
      EXPECT_EQ(cache->Find(0, kStamp + 1).where, RecordCache::Where::kNowhere);
      EXPECT_TRUE(cache->Wants(0, kStamp + 1));
      EXPECT_EQ(Get(*cache, 0), PayloadOf(0, 100));
      EXPECT_EQ(Get(*cache, 1), PayloadOf(1, 100));
    };
    expect_old();
    cache = nullptr;
    cache = Open(2, memory, 1 << 20);
    expect_old();
    EXPECT_EQ(cache->counts().out_of_date, 0u);
    cache->Put(0, kStamp + 1, PayloadOf(5, 50));
    cache->Flush();
    const auto expect_new = [&] {
      EXPECT_EQ(Get(*cache, 0, kStamp + 1), PayloadOf(5, 50));
      EXPECT_EQ(cache->Find(0, kStamp).where, RecordCache::Where::kNowhere);
      EXPECT_EQ(Get(*cache, 1), PayloadOf(1, 100));
      EXPECT_EQ(cache->counts().disk_records, 2);
    };
    expect_new();
    EXPECT_EQ(cache->counts().out_of_date, memory > 0 ? 2u : 1u);
    cache = nullptr;
    cache = Open(2, memory, 1 << 20);
    expect_new();
  }
}

TEST_F(RecordCacheTest, TakesNoBlockOfAnotherStateFromDisk) {
  auto cache = Open(1, 0, 1 << 20);
  cache->Put(0, kStamp, PayloadOf(0, 100));
  cache->Flush();
  const Extent from = cache->Find(0, kStamp).extent;
  auto file = cache->disk()->root().OpenFile(cache->disk()->ObjectPath(from.object), false);
  std::vector<std::byte> read(static_cast<size_t>(from.length));
  ASSERT_EQ(pread(file->get(), read.data(), read.size(), from.offset), from.length);
  const auto block = cache->TakeFromDisk(0, kStamp + 1, from, read);
  EXPECT_THAT(std::string(block.status().message()), HasSubstr("has changed"));
  EXPECT_EQ(cache->Find(0, kStamp).where, RecordCache::Where::kNowhere);
}

TEST_F(RecordCacheTest, StartsEmptyForAnotherDatasetInItsFolder) {
  {
    auto cache = Open(10, 0, 1 << 20);
    for (int64_t r = 0; r < 10; ++r) cache->Put(r, kStamp, PayloadOf(r, 300));
  }
  identity_ = "another dataset";
  auto cache = Open(10, 0, 1 << 20);
  EXPECT_EQ(cache->counts().disk_records, 0);
  for (int64_t r = 0; r < 10; ++r) EXPECT_FALSE(Get(*cache, r).has_value());
  cache->Put(3, kStamp, PayloadOf(3, 30));
  cache.reset();
  cache = Open(10, 0, 1 << 20);
  EXPECT_EQ(Get(*cache, 3), PayloadOf(3, 30));
  EXPECT_EQ(cache->counts().disk_records, 1);
}

TEST_F(RecordCacheTest, ObeysTheDisksQuotaAcrossRestarts) {
  for (int round = 0; round < 3; ++round) {
    auto cache = Open(1000, 0, 100'000);
    for (int64_t r = 0; r < 1000; ++r) cache->Put(r, kStamp, PayloadOf(r, 1000));
    cache->Flush();
    int64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(Folder())) {
      if (file.path().filename() != "journal") bytes += static_cast<int64_t>(file.file_size());
    }
    EXPECT_LE(bytes, 100'000);
    EXPECT_GT(cache->counts().disk_records, 80);
    EXPECT_FALSE(cache->Wants(999, kStamp));
  }
}

// Whatever happens to the files while no daemon runs: what the cache gives is a payload that was
// put, or nothing.
TEST_F(RecordCacheTest, NeverGivesWrongBytesWhateverHappensToItsFiles) {
  const uint32_t seed = testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    fs::remove_all(Folder());
    constexpr int64_t kRecords = 40;
    {
      auto cache = Open(kRecords, 0, 8 << 20);
      for (int64_t r = 0; r < kRecords; ++r) cache->Put(r, kStamp, PayloadOf(r, SizeOf(r) % 700));
    }
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(Folder())) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    const fs::path& file = files[random() % files.size()];
    const uint64_t size = fs::file_size(file);
    switch (random() % 3) {
      case 0:
        fs::resize_file(file, random() % (size + 1));
        break;
      case 1:
        fs::remove(file);
        break;
      default: {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
          const auto at = static_cast<std::streamoff>(random() % size);
          stream.seekg(at);
          const char old = static_cast<char>(stream.get());
          stream.seekp(at);
          stream.put(static_cast<char>(old ^ (1 << random() % 8)));
        }
      }
    }
    auto cache = Open(kRecords, 1 << 20, 8 << 20);
    int64_t found = 0;
    for (int64_t r = 0; r < kRecords; ++r) {
      const auto payload = Get(*cache, r);
      if (payload.has_value()) {
        ++found;
        ASSERT_EQ(*payload, PayloadOf(r, SizeOf(r) % 700)) << "record " << r << ", round " << round;
      } else {
        EXPECT_EQ(cache->Find(r, kStamp).where, RecordCache::Where::kNowhere);
        cache->Put(r, kStamp, PayloadOf(r, SizeOf(r) % 700));
      }
    }
    for (int64_t r = 0; r < kRecords; ++r) ASSERT_EQ(Get(*cache, r), PayloadOf(r, SizeOf(r) % 700));
    cache.reset();
    cache = Open(kRecords, 0, 8 << 20);
    for (int64_t r = 0; r < kRecords; ++r) ASSERT_EQ(Get(*cache, r), PayloadOf(r, SizeOf(r) % 700));
  }
}

TEST_F(RecordCacheTest, TakesPutsAndFindsFromManyThreads) {
  constexpr int64_t kRecords = 2000;
  auto cache = Open(kRecords, 4 << 20, 4 << 20);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int i = 0; i < 4000; ++i) {
        const int64_t r = static_cast<int64_t>(random() % kRecords);
        const RecordCache::Found found = cache->Find(r, kStamp);
        if (found.where == RecordCache::Where::kMemory) {
          const std::vector<std::byte> wanted = PayloadOf(r, SizeOf(r));
          wrong += !std::equal(wanted.begin(), wanted.end(), found.block.payload.begin(),
                               found.block.payload.end());
        } else {
          cache->Put(r, kStamp, PayloadOf(r, SizeOf(r)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(cache->counts().memory_records, 500);
}

// --- the daemon's caches

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
