// A job whose files change gives what it has read before, or ends with an error that names the
// file: no batch that it publishes has anything else in it. A job that is opened afterwards gives
// the new bytes, whatever is cached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/cache/cache.h"
#include "server/pipeline/cache_choice.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::SeenBatch;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;

constexpr int64_t kRecords = 100, kBatch = 10, kRecordBytes = 16;
constexpr char kYaml[] =
    "version: 1\ndataset: {format: image_folder, root: r, path: p}\nsampler: {shuffle: full, seed: "
    "3}\non_bad_sample: substitute\noutputs: [data, sample_id]\n";

class ChangedFiles : public ::testing::TestWithParam<std::tuple<std::string, CacheKind, bool>> {
 protected:
  void SetUp() override {
    const auto& [engine, kind, in_place] = GetParam();
    dataset_->AwaitClockTick();
    runtime_ = *Runtime::Create(TestRuntimeOptions(2, engine));
    auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(kYaml, dataset_));
    pipeline->Keep(kind);
    if (kind != CacheKind::kNone) {
      pipeline->cache = *cache_.Get({"fake", pipeline->kept.name, kRecords, 4 << 20, 0});
    }
    pipeline_ = pipeline;
  }

  JobConfig Job(const std::string& name) const {
    JobConfig job = TestJob(pipeline_, kBatch);
    job.name = name;
    return job;
  }
  // Other bytes of the same number, in place or as another file of that name.
  void Change() {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // file times move in ticks
    mask_ ^= 0xff;
    std::string content;
    for (int64_t r = 0; r < kRecords; ++r) {
      for (int64_t i = 0; i < kRecordBytes; ++i)
        content.push_back(static_cast<char>(FakeDataset::ByteOf(r, i) ^ mask_));
    }
    const std::string path = dataset_->root().path() + "/records.bin";
    if (std::get<2>(GetParam())) {
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << content;
    } else {
      std::ofstream(path + ".new", std::ios::binary) << content;
      std::filesystem::rename(path + ".new", path);
    }
    dataset_->AwaitClockTick();
  }
  static void Expect(const SeenBatch& batch, uint8_t mask) {
    const std::vector<int64_t> ids = batch.Int64s(1);
    for (size_t k = 0; k < ids.size(); ++k) {
      for (int64_t i = 0; i < kRecordBytes; ++i) {
        ASSERT_EQ(static_cast<uint8_t>(batch.outputs[0][k * kRecordBytes + i]),
                  FakeDataset::ByteOf(ids[k], i) ^ mask)
            << "record " << ids[k];
      }
    }
  }
  // Takes batches until the job fails; nothing: it has not, in so many steps.
  static absl::Status RunToTheEnd(TestRank& rank, int64_t steps, uint8_t mask) {
    for (int64_t step = 0; step < steps; ++step) {
      const auto event = rank.slots->Next();
      EXPECT_TRUE(event.has_value()) << "no batch came";
      if (!event.has_value()) break;
      if (event->slot < 0) {
        EXPECT_EQ(event->failure.record, -1) << "it is no bad sample";
        return event->failure.status;
      }
      Expect(rank.Copy(*event), mask);
      rank.slots->Release(event->slot);
    }
    return absl::OkStatus();
  }

  std::shared_ptr<FakeDataset> dataset_ = std::make_shared<FakeDataset>(FakeDataset::Options{});
  Cache cache_{{.memory_bytes = 4 << 20, .disk_bytes = 0, .state_dir = "", .budget = nullptr}};
  std::shared_ptr<const LoadedPipeline> pipeline_;
  std::unique_ptr<Runtime> runtime_;
  uint8_t mask_ = 0;
};

TEST_P(ChangedFiles, EndARunningJobOrLeaveItWhatItHadAndAreWhatTheNextOneGives) {
  const bool cached = std::get<1>(GetParam()) != CacheKind::kNone;
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const uint8_t old = mask_;
    TestRank rank = AttachRank(*runtime_, Job(absl::StrCat("old", round)), 0);
    ASSERT_TRUE(RunToTheEnd(rank, cached ? 2 * kRecords / kBatch : 3, old).ok());
    Change();
    const absl::Status ended = RunToTheEnd(rank, 10 * kRecords / kBatch, old);
    if (cached) {
      EXPECT_TRUE(ended.ok()) << ended << ": all of it was in the cache";
    } else {
      EXPECT_TRUE(absl::IsFailedPrecondition(ended)) << ended;
      EXPECT_THAT(std::string(ended.message()),
                  ::testing::AllOf(HasSubstr("/records.bin has changed"), HasSubstr("new loader")));
    }
    TestRank next = AttachRank(*runtime_, Job(absl::StrCat("new", round)), 0);
    EXPECT_TRUE(RunToTheEnd(next, 3 * kRecords / kBatch, mask_).ok());
    runtime_->Detach(next.stream);
    runtime_->Detach(rank.stream);
  }
}

TEST_P(ChangedFiles, AreNotToldAsBadRecordsThoughNoneOfThemCanBeParsed) {
  if (std::get<1>(GetParam()) != CacheKind::kNone) GTEST_SKIP() << "all of it is in the cache";
  std::atomic<bool> is_broken{false};
  const auto parse = [&](int64_t) {
    return is_broken ? absl::DataLossError("damaged") : absl::OkStatus();
  };
  dataset_ = std::make_shared<FakeDataset>(FakeDataset::Options{.parse = parse});
  pipeline_ = LoadPipeline(kYaml, dataset_);
  for (const int slots : {1, 3}) {
    is_broken = false;
    const uint8_t old = mask_;
    TestRank rank = AttachRank(*runtime_, Job(absl::StrCat("job", slots)), 0, slots);
    ASSERT_TRUE(RunToTheEnd(rank, 3, old).ok());
    Change();
    is_broken = true;
    const absl::Status ended = RunToTheEnd(rank, 10 * kRecords / kBatch, old);
    EXPECT_TRUE(absl::IsFailedPrecondition(ended)) << ended;
    runtime_->Detach(rank.stream);
  }
  runtime_ = nullptr;  // its workers call `parse`
}

INSTANTIATE_TEST_SUITE_P(Engines, ChangedFiles,
                         ::testing::Combine(::testing::ValuesIn(WorkingEngines()),
                                            ::testing::Values(CacheKind::kNone, CacheKind::kBytes,
                                                              CacheKind::kDecoded),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return absl::StrCat(
                               std::get<0>(info.param), "_", CacheKindName(std::get<1>(info.param)),
                               std::get<2>(info.param) ? "_in_place" : "_by_rename");
                         });

}  // namespace
}  // namespace feedwater::server
