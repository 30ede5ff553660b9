// What is kept of records in memory and on disk: that it comes back as it was put, that damage is
// found and never taken for a payload, and that room is obeyed.
#include "server/cache/record_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/base/sanitized.h"
#include "tests/cache/payloads.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

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

TEST_F(RecordCacheTest, NoWorkerKeepsALargeBlock) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory counts, too";
  auto cache = Open(1000, 8 << 20, 0);  // which has no room for it
  const std::vector<std::byte> large = PayloadOf(1, 40 << 20);
  const size_t before = mallinfo2().hblkhd;  // of large allocations
  cache->Put(1, kStamp, large);
  EXPECT_LT(mallinfo2().hblkhd, before + (20 << 20));
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

// A disk on its way out may take seconds for each error.
TEST_F(RecordCacheTest, ABlockThatCannotBeReadIsTakenOutAndADiskOfManyIsNotAsked) {
  const absl::Status error = absl::UnavailableError("Input/output error");
  auto cache = Open(20, 0, 1 << 20);
  for (int64_t r = 0; r < 20; ++r) cache->Put(r, kStamp, PayloadOf(r, 100));
  cache->Flush();
  for (int64_t r = 0; r < 8; ++r) {
    const RecordCache::Found found = cache->Find(r, kStamp);
    ASSERT_EQ(found.where, RecordCache::Where::kDisk);
    EXPECT_FALSE(cache->Wants(r, kStamp));
    cache->ReadFailed(r, found.extent, error);
    EXPECT_EQ(cache->Find(r, kStamp).where, RecordCache::Where::kNowhere);
    EXPECT_EQ(cache->Wants(r, kStamp), r < 7) << "it is made anew, and kept anew";
    EXPECT_EQ(cache->Has(10), r < 7);
  }
  EXPECT_EQ(cache->Find(10, kStamp).where, RecordCache::Where::kNowhere);
  EXPECT_EQ(cache->counts().damaged, 8u);
  cache->Put(0, kStamp, PayloadOf(0, 100));
  cache->Flush();
  EXPECT_EQ(cache->counts().disk_records, 12);
}

TEST_F(RecordCacheTest, ErrorsOfADiskThatIsWellAgainAreForgotten) {
  auto cache = Open(40, 0, 1 << 20);
  for (int64_t r = 0; r < 40; ++r) cache->Put(r, kStamp, PayloadOf(r, 100));
  cache->Flush();
  for (int64_t r = 0; r < 20; ++r) {
    cache->ReadFailed(r, cache->Find(r, kStamp).extent, absl::UnavailableError("Stale handle"));
    EXPECT_EQ(Get(*cache, 20 + r), PayloadOf(20 + r, 100)) << r;
  }
}

// A read that went well meanwhile must not hide the last error: the disk is broken by then, and
// would never be opened anew.
TEST_F(RecordCacheTest, ADiskThatIsBrokenStaysUnreadable) {
  for (int round = 0; round < 200; ++round) {
    DiskTier::Options options;
    options.folder = Folder();
    options.identity = identity_;
    options.records = 1;
    options.quota = std::make_shared<ByteQuota>(1 << 20);
    options.placed = [](int64_t, const BlockPlace*, uint64_t) {};
    const auto tier = DiskTier::Open(std::move(options));
    ASSERT_TRUE(tier.ok()) << tier.status();
    std::atomic<bool> has_begun{false}, is_over{false};
    std::thread well([&] {
      for (; !is_over; has_begun = true) (*tier)->ReadWell();
    });
    while (!has_begun) {
    }
    for (int i = 0; i < 1'000'000 && !(*tier)->full(); ++i)
      (*tier)->ReadFailed(absl::UnavailableError("Input/output error"));
    is_over = true;
    well.join();
    ASSERT_NE((*tier)->full(), (*tier)->is_readable()) << "round " << round;
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

// Such as blocks that a daemon had written when it was killed, before their lines of the journal.
TEST_F(RecordCacheTest, CountsWhatItsJournalDoesNotName) {
  Open(10, 0, 1 << 20)->Put(1, kStamp, PayloadOf(1, 1000));
  const std::string segment = Folder() + "/segment-00000";
  ASSERT_TRUE(fs::exists(segment));
  std::ofstream(segment, std::ios::binary | std::ios::app) << std::string(50'000, 'x');
  auto cache = Open(10, 0, 1 << 20);
  EXPECT_TRUE(Get(*cache, 1).has_value());
  EXPECT_EQ(cache->counts().disk_bytes, static_cast<int64_t>(fs::file_size(segment)));
  EXPECT_EQ(disk_quota_->used(), cache->counts().disk_bytes);
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

}  // namespace
}  // namespace feedwater::server
