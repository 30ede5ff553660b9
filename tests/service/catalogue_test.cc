// What opened pipelines and caches that nobody uses give back, to whom.
#include "server/service/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/cache/payloads.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/test_images.h"

namespace feedwater::server {
namespace {

using Pipeline = std::weak_ptr<const LoadedPipeline>;

constexpr int64_t kMiB = 1 << 20;
constexpr uid_t kAsker = 7, kOther = 8;

class MakingRoom : public ::testing::Test {
 protected:
  MakingRoom() {
    shares_->Limit(40 * kMiB);
    Catalogue::Options options;
    options.shares = shares_;
    options.max_text_bytes = 1 << 16;
    options.cache = std::make_shared<Cache>(Cache::Options{
        .memory_bytes = 16 * kMiB, .disk_bytes = 0, .state_dir = "", .budget = whole_});
    catalogue_ = std::make_unique<Catalogue>(std::move(options));
    catalogue_->Reload({}, temp_.AsRoot());
    mine_ = Open(kAsker, "mine");
    one_ = Open(kOther, "one");
    two_ = Open(kOther, "two");
  }

  // A pipeline that nobody uses, with a cache that takes more than 3 MiB.
  Pipeline Open(uid_t user, const std::string& name) {
    ::feedwater::testing::WriteImageFolder(temp_ / name, 1, 2);
    const auto loaded = catalogue_->LoadText(
        user, "test.yaml",
        absl::StrCat("version: 1\ndataset: {format: image_folder, root: root, path: ", name,
                     "}\ncache: {kind: bytes}\noutputs: [label]\n"),
        [] { return false; });
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return {};
    (*loaded)->cache->Put(0, kStamp, PayloadOf(0, 3 * kMiB));
    EXPECT_GT((*loaded)->cache->counts().memory_bytes, 3 * kMiB);
    return *loaded;
  }

  absl::Status Refusal(int64_t bytes) {
    const absl::Status status = shares_->Of(kAsker)->Reserve("arenas", bytes).status();
    EXPECT_TRUE(RefusedMemoryOf(status).has_value()) << status;
    return status;
  }

  TempFolder temp_;
  const std::shared_ptr<MemoryBudget> whole_ = MemoryBudget::Create(64 * kMiB);
  const std::shared_ptr<UserShares> shares_ = std::make_shared<UserShares>(whole_);
  std::unique_ptr<Catalogue> catalogue_;
  Pipeline mine_, one_, two_;
};

// The pipeline stays open for the next job, with its cache; that the disk is tried again must not
// wait until it is let go of.
TEST(LostDisk, IsTriedAgainForTheNextJob) {
  TempFolder temp;
  ::feedwater::testing::WriteImageFolder(temp / "set", 1, 2);
  for (const int64_t retry_ns : {int64_t{0}, int64_t{3600} * 1'000'000'000}) {
    Catalogue::Options options;
    options.cache = std::make_shared<Cache>(Cache::Options{
        .memory_bytes = kMiB, .disk_bytes = kMiB, .state_dir = temp / "state", .budget = nullptr});
    options.disk_retry_ns = retry_ns;
    Catalogue catalogue(std::move(options));
    catalogue.Reload({}, temp.AsRoot());
    const auto open = [&] {
      return *catalogue.LoadText(kAsker, "test.yaml",
                                 "version: 1\ndataset: {format: image_folder, root: root, path: "
                                 "set}\ncache: {kind: bytes}\noutputs: [label]\n",
                                 [] { return false; });
    };
    auto pipeline = open();
    auto other = open();
    EXPECT_EQ(pipeline, other);
    while (!pipeline->cache->has_lost_disk())
      pipeline->cache->ReadFailed(0, Extent{}, absl::UnavailableError("Input/output error"));
    EXPECT_EQ(open(), pipeline) << "it is in use";
    pipeline = other = nullptr;
    EXPECT_EQ(open()->cache->has_lost_disk(), retry_ns > 0);
  }
}

TEST_F(MakingRoom, WhatIsShortOfTheKernelsIsTriedOnceMore) {
  const absl::Status refusal = absl::ResourceExhaustedError("too many open files");
  EXPECT_TRUE(catalogue_->MakeRoomFor(kAsker, refusal));
  EXPECT_TRUE(mine_.expired());
  for (const Pipeline& pipeline : {one_, two_}) EXPECT_FALSE(pipeline.expired());
  EXPECT_FALSE(catalogue_->MakeRoomFor(kAsker, refusal, /*all=*/true));
}

TEST_F(MakingRoom, WhatMemoryDoesNotCureTakesNothingFromAnybody) {
  EXPECT_FALSE(catalogue_->MakeRoomFor(kAsker, absl::NotFoundError("no such file")));
  EXPECT_FALSE(catalogue_->MakeRoomFor(kAsker, Refusal(41 * kMiB))) << "more than a share";
  for (const Pipeline& pipeline : {mine_, one_, two_}) EXPECT_FALSE(pipeline.expired());
}

TEST_F(MakingRoom, WhoseShareIsShortLosesOnlyItsOwn) {
  const auto held = shares_->Of(kAsker)->Reserve("arenas", 35 * kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(catalogue_->MakeRoomFor(kAsker, Refusal(10 * kMiB)));
  EXPECT_TRUE(mine_.expired());
  for (const Pipeline& pipeline : {one_, two_}) EXPECT_FALSE(pipeline.expired());
}

TEST_F(MakingRoom, WhoseShareIsShortBesideTheWholeLosesOnlyItsOwn) {
  const auto held = shares_->Of(kAsker)->Reserve("arenas", 35 * kMiB);
  const auto others = whole_->Reserve("arenas", whole_->free_bytes() - kMiB);
  ASSERT_TRUE(held.ok() && others.ok()) << held.status() << others.status();
  const absl::Status refusal = Refusal(10 * kMiB);
  EXPECT_FALSE(RefusedMemoryOf(refusal)->by_share) << "the whole is short, too";
  for (const bool all : {false, true}) catalogue_->MakeRoomFor(kAsker, refusal, all);
  EXPECT_TRUE(mine_.expired());
  for (const Pipeline& pipeline : {one_, two_}) EXPECT_FALSE(pipeline.expired());
}

// The piece that was refused fits once the others are given back.
TEST_F(MakingRoom, WhoseShareIsShortForManyPiecesLosesOnlyItsOwn) {
  const auto held = shares_->Of(kAsker)->Reserve("arenas", 20 * kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  int times = 0;
  const auto build = [&]() -> absl::StatusOr<int> {
    ++times;
    std::vector<MemoryReservation> pieces;
    for (int i = 0; i < 6; ++i) {
      FW_ASSIGN_OR_RETURN(MemoryReservation piece,
                          shares_->Of(kAsker)->Reserve("indexes", 4 * kMiB));
      pieces.push_back(std::move(piece));
    }
    return 6;
  };
  absl::StatusOr<int> result = build();
  catalogue_->RetryWithRoom(kAsker, build, &result);
  EXPECT_TRUE(absl::IsResourceExhausted(result.status())) << result.status();
  EXPECT_LE(times, 3);
  EXPECT_TRUE(mine_.expired());
  for (const Pipeline& pipeline : {one_, two_}) EXPECT_FALSE(pipeline.expired());
}

TEST_F(MakingRoom, OthersLoseNoMoreThanIsWanted) {
  const auto held = whole_->Reserve("arenas", whole_->free_bytes() - kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(catalogue_->MakeRoomFor(kAsker, Refusal(3 * kMiB)));
  EXPECT_TRUE(mine_.expired());
  for (const Pipeline& pipeline : {one_, two_})
    EXPECT_FALSE(pipeline.expired()) << "the asker's own were enough";
  EXPECT_TRUE(catalogue_->MakeRoomFor(kAsker, Refusal(6 * kMiB)));
  EXPECT_TRUE(one_.expired());
  EXPECT_FALSE(two_.expired());
  EXPECT_TRUE(shares_->Of(kAsker)->Reserve("arenas", 6 * kMiB).ok());
}

// Ten filters of 4 MiB and more.
TEST_F(MakingRoom, TablesOfOpsAreInTheSharesOfTheirUsers) {
  temp_.Write("audio.bin", std::string(4096, '\0'));
  std::string graph;
  for (int i = 0; i < 5; ++i) {
    for (const char* rates : {"orig_freq: 65535, new_freq: 65536",
                              "orig_freq: 65536, new_freq: "
                              "65535"})
      absl::StrAppend(&graph, "  - resample: {in: audio, ", rates, "}\n");
  }
  const std::string text = absl::StrCat(
      "version: 1\ndataset: {format: raw, root: root, path: audio.bin, record_bytes: 64, fields: "
      "{audio: {offset: 0, dtype: float32, shape: [16]}}}\ngraph:\n",
      graph, "cache: {kind: none}\noutputs: [audio]\n");
  const auto open = [&] {
    return catalogue_->LoadText(kAsker, "tables.yaml", text, [] { return false; });
  };
  const int64_t before = shares_->Of(kAsker)->planned_bytes();
  const auto opened = open();
  EXPECT_TRUE(absl::IsResourceExhausted(opened.status())) << opened.status();
  EXPECT_THAT(std::string(opened.status().message()), ::testing::HasSubstr("tables"));
  EXPECT_LE(shares_->Of(kAsker)->planned_bytes(), before);
}

TEST_F(MakingRoom, WhatTakesMemoryInPiecesHasAllThatNobodyUses) {
  const auto held = whole_->Reserve("arenas", whole_->free_bytes() - kMiB);
  ASSERT_TRUE(held.ok()) << held.status();
  int tries = 0;
  const auto work = [&]() -> absl::StatusOr<int64_t> {
    std::vector<MemoryReservation> taken;
    for (++tries;;) {
      auto piece = shares_->Of(kAsker)->Reserve("indexes", 64 << 10);
      if (!piece.ok()) return piece.status();
      taken.push_back(*std::move(piece));
      if (taken.size() == 9 << 4) return 9 * kMiB;
    }
  };
  absl::StatusOr<int64_t> result = work();
  catalogue_->RetryWithRoom(kAsker, work, &result);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(tries, 3) << "what was done before is done again";
}

}  // namespace
}  // namespace feedwater::server
