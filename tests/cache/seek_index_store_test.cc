#include "server/cache/seek_index_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/cache/cache.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

// Where a file could be cut without a trace: behind its head and behind each image.
std::set<size_t> EndsOfImages(const std::string& file) {
  constexpr size_t kFileHead = 16, kImageHead = 32, kBytesAt = 24;
  std::set<size_t> ends;
  for (size_t at = kFileHead; at <= file.size();) {
    ends.insert(at);
    if (at + kImageHead > file.size()) break;
    uint64_t bytes;
    std::memcpy(&bytes, file.data() + at + kBytesAt, sizeof(bytes));
    at += kImageHead + bytes;
  }
  return ends;
}

std::vector<std::byte> Document(uint64_t image, size_t bytes) {
  std::vector<std::byte> document(bytes);
  std::mt19937_64 random(image);
  for (std::byte& byte : document) byte = static_cast<std::byte>(random());
  return document;
}

class SeekIndexStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<SeekIndexStore> Open(int64_t limit = 64 << 20) {
    SeekIndexStore::Options options;
    options.file = file_;
    options.quota = quota_ = std::make_shared<ByteQuota>(limit);
    options.budget = budget_;
    auto store = std::make_unique<SeekIndexStore>(options);
    store->WaitUntilRead();
    return store;
  }
  static ContentHash Image(uint64_t number) { return {number * 0x9E3779B97F4A7C15, number}; }
  // How many of the first `images` the store has as they were put; none may be otherwise.
  static int Good(const SeekIndexStore& store, int images) {
    int good = 0;
    std::vector<std::byte> found;
    for (int i = 0; i < images; ++i) {
      if (!store.Find(Image(i), &found)) continue;
      EXPECT_EQ(found, Document(i, 100 + i)) << i;
      ++good;
    }
    return good;
  }
  static void Fill(SeekIndexStore& store, int images) {
    for (int i = 0; i < images; ++i) store.Put(Image(i), Document(i, 100 + i));
  }
  std::string Bytes() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& bytes) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
  }

  TempFolder temp_;
  const fs::path folder_ = temp_.path();
  const std::string file_ = (folder_ / "photos.seek").string();
  std::shared_ptr<ByteQuota> quota_;
  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create(1 << 30);
};

TEST_F(SeekIndexStoreTest, FindsWhatWasPutAlsoAfterARestart) {
  {
    auto store = Open();
    Fill(*store, 1000);
    EXPECT_EQ(Good(*store, 1100), 1000);
    EXPECT_EQ(store->counts().images, 1000);
    EXPECT_FALSE(fs::exists(file_)) << "it is saved at its end";
  }
  auto store = Open();
  EXPECT_EQ(Good(*store, 1100), 1000);
  EXPECT_EQ(store->counts().damaged, 0);
}

TEST_F(SeekIndexStoreTest, KeepsTheLongerDocument) {
  auto store = Open();
  std::vector<std::byte> found;
  store->Put(Image(1), Document(7, 200));
  store->Put(Image(1), Document(8, 100));
  ASSERT_TRUE(store->Find(Image(1), &found));
  EXPECT_EQ(found, Document(7, 200));
  store->Put(Image(1), Document(9, 300));
  ASSERT_TRUE(store->Find(Image(1), &found));
  EXPECT_EQ(found, Document(9, 300));
  EXPECT_EQ(store->counts().images, 1);
}

TEST_F(SeekIndexStoreTest, TakesNoMoreThanItsQuotaAndGivesItBack) {
  constexpr int64_t kLimit = 3 << 20;
  {
    auto store = Open(kLimit);
    for (int i = 0; i < 100; ++i) store->Put(Image(i), Document(i, 100'000));
    const SeekIndexStore::Counts counts = store->counts();
    EXPECT_GT(counts.images, 20);
    EXPECT_LT(counts.images, 32);
    EXPECT_LE(counts.bytes, kLimit);
    EXPECT_EQ(counts.refused, static_cast<uint64_t>(100 - counts.images));
    EXPECT_LE(quota_->used(), kLimit);
    EXPECT_EQ(budget_->planned_bytes(), quota_->used());
  }
  EXPECT_EQ(quota_->used(), 0);
  EXPECT_EQ(budget_->planned_bytes(), 0);
}

TEST_F(SeekIndexStoreTest, GivesNothingWrongOfADamagedFileAndMendsIt) {
  constexpr int kImages = 300;
  {
    auto store = Open();
    Fill(*store, kImages);
  }
  const std::string whole = Bytes();
  const std::set<size_t> ends = EndsOfImages(whole);
  ASSERT_EQ(ends.size(), kImages + 1u);
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    std::string bytes = whole;
    if (i % 3 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      const size_t at = i % 3 == 1 ? random() % 64 : random() % bytes.size();
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    Write(bytes);
    auto store = Open();
    const int good = Good(*store, kImages);
    EXPECT_LT(good, kImages) << i;
    // A file that is cut between two images looks like one that holds fewer of them.
    const bool looks_whole = i % 3 == 0 && ends.count(bytes.size()) > 0;
    EXPECT_EQ(store->counts().damaged, looks_whole ? 0 : 1) << i;
    Fill(*store, kImages);
    store = nullptr;
    store = Open();
    ASSERT_EQ(Good(*store, kImages), kImages) << i;
    EXPECT_EQ(store->counts().damaged, 0) << i;
  }
}

TEST_F(SeekIndexStoreTest, TwoWritersLoseNothing) {
  auto daemon = Open();
  daemon->Put(Image(1), Document(1, 101));
  {
    auto command = Open();  // `feedwater index --seek` beside it
    command->Put(Image(2), Document(2, 102));
  }
  daemon = nullptr;
  EXPECT_EQ(Good(*Open(), 3), 2);
}

TEST_F(SeekIndexStoreTest, JobsOfADatasetShareAStoreThatLastsWhileThereIsRoom) {
  Cache::Options options;
  options.state_dir = folder_.string();
  options.seek_index_bytes = 4 << 20;
  Cache cache(options);
  auto first = cache.SeekIndexesOf("a");
  EXPECT_EQ(first, cache.SeekIndexesOf("a"));
  EXPECT_NE(first, cache.SeekIndexesOf("b"));
  for (int i = 0; i < 30; ++i) first->Put(Image(i), Document(i, 100'000));
  first = nullptr;
  cache.SeekIndexesOf("c");  // closes what nobody uses, which is saved
  EXPECT_TRUE(fs::exists(folder_ / "indexes" / "a.seek"));
  auto again = cache.SeekIndexesOf("a");
  again->WaitUntilRead();
  EXPECT_EQ(again->counts().images, 30);
}

// The state folder may be one where others keep files.
TEST_F(SeekIndexStoreTest, FilesOfOthersStayWhereOldOnesMakeRoom) {
  Cache::Options options;
  options.state_dir = folder_.string();
  options.seek_index_bytes = 1 << 20;
  Cache cache(options);
  const auto file_of = [&](char digit) {
    return folder_ / "indexes" / (std::string(32, digit) + ".seek");
  };
  for (const char digit : {'a', 'b', 'c', 'd'}) {
    auto store = cache.SeekIndexesOf(std::string(32, digit));
    for (int i = 0; i < 9; ++i) store->Put(Image(i), Document(i, 100'000));
  }
  const std::string large(5 << 20, 'x');
  const fs::path theirs[] = {folder_ / "indexes" / "notes.seek", file_of('e')};
  for (const fs::path& file : theirs) std::ofstream(file) << large;
  for (const char digit : {'1', '2', '3', '4'}) {
    auto store = cache.SeekIndexesOf(std::string(32, digit));
    for (int i = 0; i < 9; ++i) store->Put(Image(i), Document(i, 100'000));
  }
  cache.SeekIndexesOf(std::string(32, '5'));
  for (const fs::path& file : theirs) EXPECT_EQ(fs::file_size(file), large.size()) << file;
  EXPECT_FALSE(fs::exists(file_of('a')));
  EXPECT_TRUE(fs::exists(file_of('3'))) << "files of others do not count";
}

TEST_F(SeekIndexStoreTest, NoQuotaMeansNone) {
  Cache cache(Cache::Options{});
  EXPECT_EQ(cache.SeekIndexesOf("a"), nullptr);
}

}  // namespace
}  // namespace feedwater::server
