// A pipeline whose records come from the cache gives the bytes that it gives without one, whatever
// is in memory, on disk, damaged, or made from files that have changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/cache/cache.h"
#include "server/pipeline/cache_choice.h"
#include "tests/codec/test_images.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/test_images.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::RunSteps;
using ::feedwater::testing::SeenBatch;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;

constexpr int64_t kRecords = 100, kBatch = 10, kSteps = 25;  // two and a half epochs
constexpr char kYaml[] =
    "version: 1\ndataset: {format: image_folder, root: r, path: p}\nsampler: {shuffle: full, seed: "
    "3}\n"
    "outputs: [data, label, sample_id, position]\n";

using Seen = std::vector<std::vector<SeenBatch>>;

class CachedRecords : public ::testing::Test {
 protected:
  Cache::Options Options(int64_t memory, int64_t disk) {
    return {
        .memory_bytes = memory, .disk_bytes = disk, .state_dir = temp_.path(), .budget = nullptr};
  }

  // Runs the pipeline with a cache (or without, with null), and leaves what the cache counted in
  // counts_.
  Seen Run(Cache* cache, const std::string& engine = "pread", int workers = 2) {
    auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(kYaml, dataset_));
    if (cache != nullptr) {
      dataset_->AwaitClockTick();
      Cache::Request request;
      request.dataset = "fake";
      pipeline->Keep(CacheKind::kBytes);
      request.form = pipeline->kept.name;
      request.records = kRecords;
      request.memory_bytes = request.disk_bytes = 1 << 30;
      pipeline->cache = *cache->Get(request);
    }
    Seen seen = RunSteps(TestRuntimeOptions(workers, engine), TestJob(pipeline, kBatch), kSteps);
    if (pipeline->cache != nullptr) {
      pipeline->cache->Flush();
      counts_ = pipeline->cache->counts();
    }
    return seen;
  }

  TempFolder temp_;
  std::shared_ptr<FakeDataset> dataset_ = std::make_shared<FakeDataset>(FakeDataset::Options{});
  RecordCache::Counts counts_;
};

TEST_F(CachedRecords, AreTheSameBytesFromMemoryAndFromDiskWithEveryEngine) {
  const Seen plain = Run(nullptr);
  for (const std::string& engine : WorkingEngines()) {
    SCOPED_TRACE(engine);
    fs::remove_all(temp_.path() + "/cache");
    {
      Cache cache(Options(4 << 20, 4 << 20));
      EXPECT_EQ(Run(&cache, engine), plain);
      EXPECT_EQ(counts_.memory_records, kRecords);
      EXPECT_EQ(counts_.disk_records, kRecords);
      EXPECT_GT(counts_.memory_hits, 100u);
    }
    {
      Cache cache(Options(0, 4 << 20));  // after a restart, without memory
      EXPECT_EQ(Run(&cache, engine), plain);
      EXPECT_GE(counts_.disk_hits, static_cast<uint64_t>(kSteps * kBatch));
      EXPECT_EQ(counts_.misses, 0u);
    }
    {
      Cache cache(Options(4 << 20, 4 << 20));  // with memory, which fills from the disk
      EXPECT_EQ(Run(&cache, engine), plain);
      EXPECT_EQ(counts_.memory_records, kRecords);
      EXPECT_GT(counts_.memory_hits, 100u);
    }
  }
}

TEST_F(CachedRecords, AreReadAnewWhenTheDisksBlocksAreDamaged) {
  const Seen plain = Run(nullptr);
  {
    Cache cache(Options(0, 4 << 20));
    Run(&cache);
    ASSERT_EQ(counts_.disk_records, kRecords);
  }
  for (const auto& entry : fs::recursive_directory_iterator(temp_.path() + "/cache")) {
    if (entry.path().filename().string().rfind("segment", 0) != 0) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (uint64_t at = 70; at < fs::file_size(entry.path()); at += 512) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put('\xA5');
    }
  }
  Cache cache(Options(0, 4 << 20));
  EXPECT_EQ(Run(&cache), plain);
  EXPECT_GT(counts_.damaged, 10u);
  EXPECT_EQ(counts_.disk_records, kRecords) << "what was damaged is kept again";
}

TEST_F(CachedRecords, AreReadAnewWhenTheirFileHasChanged) {
  {
    Cache cache(Options(0, 4 << 20));
    Run(&cache);
    ASSERT_EQ(counts_.disk_records, kRecords);
  }
  dataset_ =
      std::make_shared<FakeDataset>(FakeDataset::Options{});  // the same bytes in another file
  Cache cache(Options(0, 4 << 20));
  EXPECT_EQ(Run(&cache), Run(nullptr));
  // A record at the seam of two epochs may be on its way twice.
  EXPECT_GE(counts_.out_of_date, static_cast<uint64_t>(kRecords));
  EXPECT_EQ(counts_.disk_records, kRecords) << "what was out of date is kept anew";
}

// What is read within the tick of the file's last change may be half of it.
TEST_F(CachedRecords, AreNotKeptWhileAChangeOfTheirFileWouldNotShow) {
  const std::string path = dataset_->root().path() + "/records.bin";
  const auto age_ns = [&] {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return ClockNs(CLOCK_REALTIME) - info.st_ctim.tv_sec * 1'000'000'000LL - info.st_ctim.tv_nsec;
  };
  auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(kYaml, dataset_));
  pipeline->Keep(CacheKind::kBytes);
  JobConfig job = TestJob(pipeline, kBatch);
  auto runtime = *Runtime::Create(TestRuntimeOptions(1, "pread"));
  bool was_quick = false;  // else the tick was over
  for (int attempt = 0; attempt < 100 && !was_quick; ++attempt) {
    Cache cache(Options(4 << 20, 0));
    pipeline->cache = *cache.Get({"fake", pipeline->kept.name, kRecords, 1 << 30, 0});
    job.name = absl::StrCat("job", attempt);
    fs::permissions(path, fs::perms::owner_read);  // a change
    auto rank = ::feedwater::testing::AttachRank(*runtime, job, 0, 1);
    rank.Next();
    const int64_t kept = pipeline->cache->counts().memory_records;
    was_quick = age_ns() < kFileTimeTickNs;
    if (was_quick) {
      EXPECT_EQ(kept, 0);
      dataset_->AwaitClockTick();
      for (int step = 0; step < 20; ++step) rank.Next();
      EXPECT_EQ(pipeline->cache->counts().memory_records, kRecords);
    }
    runtime->Detach(rank.stream);
  }
  EXPECT_TRUE(was_quick);
}

TEST_F(CachedRecords, AreKeptAsFarAsThereIsRoom) {
  Cache cache(Options(8192, 0));
  const Seen plain = Run(nullptr);
  EXPECT_EQ(Run(&cache), plain);
  EXPECT_GT(counts_.memory_records, 0);
  EXPECT_LT(counts_.memory_records, kRecords);
  EXPECT_GT(counts_.memory_hits, 0u);
  EXPECT_GT(counts_.misses, static_cast<uint64_t>(kRecords));
}

// --- coefficients
// ----------------------------------------------------------------------------

constexpr char kPhotos[] =
    "version: 1\ndataset: {format: image_folder, root: root, path: photos}\n"
    "sampler: {shuffle: full, seed: 3}\ngraph:\n  - decode: {in: data, out: image}\n"
    "  - random_resized_crop: {size: [48, 48]}\n  - random_horizontal_flip: {}\n"
    "  - normalize: {mean: [120, 115, 100], std: [58, 57, 57], dtype: float32, layout: CHW}\n"
    "outputs: [image, label, sample_id]\n";

// JPEGs of several samplings and PNGs: every record comes out of the cache as out of its file.
TEST(CachedCoefficients, GiveTheBytesOfTheFilesInEveryEpochAndAfterARestart) {
  TempFolder temp;
  ::feedwater::testing::WriteImageFolder(temp / "photos", 3, 7);
  const std::shared_ptr<const Roots> roots = temp.AsRoot();
  DatasetOptions options;
  options.roots = roots;
  const auto dataset = OpenDataset(ParsePipeline(kPhotos, "photos.yaml")->dataset, options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  RecordCache::Counts counts;
  const auto run = [&](Cache* cache) {
    auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(kPhotos, *dataset));
    if (cache != nullptr) {
      const CacheChoice choice =
          ChooseCache(pipeline->spec, **dataset, *pipeline->plan, 64 << 20, 64 << 20);
      EXPECT_EQ(choice.kind, CacheKind::kCoefficients) << choice.reason;
      pipeline->Keep(choice.kind);
      pipeline->cache =
          *cache->Get({"photos", pipeline->kept.name, (*dataset)->size(), 64 << 20, 64 << 20});
    }
    Seen seen = RunSteps(TestRuntimeOptions(2, "pread"), TestJob(pipeline, 7), 9);  // three epochs
    if (cache != nullptr) {
      pipeline->cache->Flush();
      counts = pipeline->cache->counts();
    }
    return seen;
  };
  const Seen plain = run(nullptr);
  Cache::Options cached{.memory_bytes = 64 << 20,
                        .disk_bytes = 64 << 20,
                        .state_dir = temp.path(),
                        .budget = nullptr};
  {
    Cache cache(cached);
    EXPECT_EQ(run(&cache), plain);
    EXPECT_EQ(counts.memory_records, 21);
    EXPECT_EQ(counts.disk_records, 21);
  }
  cached.memory_bytes = 0;
  Cache cache(cached);
  EXPECT_EQ(run(&cache), plain);
  EXPECT_EQ(counts.misses, 0u);
}

// Progressive files, restart intervals and scans of one component, and a progressive file that
// leaves something out, which stays a file: the bytes are those of a run without a cache, and from
// the second epoch on only that file goes to libjpeg-turbo.
TEST(CachedCoefficients, AreThoseOfProgressiveFilesToo) {
  constexpr int kFiles = 24;
  TempFolder temp;
  std::mt19937 random(4);
  fs::create_directories(temp / "photos/a");
  for (int i = 0; i < kFiles; ++i) {
    testing::JpegOptions options;
    options.luma_h = 1 + i % 2;
    options.luma_v = 1 + i / 2 % 2;
    if (i % 3 == 0) options.scans = testing::RandomScript(3, random);
    if (i == 0) options.scans.pop_back();
    if (i % 3 == 1) options.restart_mcus = 3;
    if (i % 3 == 2) options.interleaved = false;
    std::ofstream(temp / absl::StrCat("photos/a/", i, ".jpg"), std::ios::binary)
        << testing::EncodeJpeg(testing::NoisyImage({70 + i, 60 + 2 * i}, 3, random), options);
  }
  DatasetOptions options;
  options.roots = temp.AsRoot();
  const auto dataset = OpenDataset(ParsePipeline(kPhotos, "photos.yaml")->dataset, options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Cache cache(
      {.memory_bytes = 64 << 20, .disk_bytes = 0, .state_dir = temp.path(), .budget = nullptr});
  constexpr int kEpochs = 3, kSlots = 3;
  int64_t kept = 0;
  const auto run = [&](bool is_cached, DecodeCounts* counts) {
    auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(kPhotos, *dataset));
    if (is_cached) {
      pipeline->Keep(CacheKind::kCoefficients);
      pipeline->cache =
          *cache.Get({"photos", pipeline->kept.name, (*dataset)->size(), 64 << 20, 0});
    }
    auto runtime = *Runtime::Create(TestRuntimeOptions(2, "pread"));
    const JobConfig job = TestJob(pipeline, kFiles);
    auto rank = ::feedwater::testing::AttachRank(*runtime, job, 0, kSlots);
    std::vector<SeenBatch> seen;
    for (int epoch = 0; epoch < kEpochs; ++epoch) seen.push_back(rank.Next());
    *counts = runtime->Snapshot().at(0).decoded;
    runtime->Detach(rank.stream);
    if (is_cached) kept = pipeline->cache->counts().memory_records;
    return seen;
  };
  const auto by_libjpeg = [](const DecodeCounts& counts) {
    return std::accumulate(std::begin(counts.libjpeg), std::end(counts.libjpeg), uint64_t{0});
  };
  DecodeCounts plain, cached;
  const auto expected = run(false, &plain);
  EXPECT_EQ(plain.from_coefficients + plain.own_decoder, 0u);
  // Files that have just been written are not kept yet.
  for (int attempt = 0; attempt < 100 && kept < kFiles; ++attempt)
    ASSERT_EQ(run(true, &cached), expected);
  ASSERT_EQ(kept, kFiles);
  EXPECT_EQ(run(true, &cached), expected);
  EXPECT_GE(cached.from_coefficients, uint64_t{kEpochs * (kFiles - 1)});
  EXPECT_EQ(cached.own_decoder, 0u);
  EXPECT_GE(by_libjpeg(cached), uint64_t{kEpochs});
  EXPECT_LE(by_libjpeg(cached), uint64_t{kEpochs + kSlots}) << "one file of each batch under way";
}

// What is kept under one name is the same whoever has kept it.
TEST(CachedCoefficients, AreKeyedByWhatIsKeptAsCoefficients) {
  const auto dataset = std::make_shared<FakeDataset>(FakeDataset::Options{});
  const auto pipeline = LoadPipeline(kYaml, dataset);
  const KeptForm bytes = KeptFormOf(CacheKind::kBytes, *dataset, *pipeline->plan);
  const KeptForm coefficients = KeptFormOf(CacheKind::kCoefficients, *dataset, *pipeline->plan);
  EXPECT_THAT(bytes.name, ::testing::StartsWith("bytes-3-"));
  EXPECT_THAT(coefficients.name, ::testing::StartsWith("coefficients-3-"));
  EXPECT_NE(bytes.digest, coefficients.digest);
  EXPECT_EQ(bytes.digest.size(), 32u);
  EXPECT_EQ(bytes.fields.size(), dataset->fields().size());
}

// A document does not tell how many scans its file had.
TEST(CachedCoefficients, OfAFileOfTooManyScansAreNotGivenToWhoAllowsFewer) {
  const auto dataset = std::make_shared<FakeDataset>(FakeDataset::Options{});
  const auto digest = [&](CacheKind kind, const std::string& limits) {
    const auto pipeline = LoadPipeline(absl::StrCat(kYaml, limits), dataset);
    return KeptFormOf(kind, *dataset, *pipeline->plan).digest;
  };
  const std::string few = "limits: {max_scans: 5}\n", many = "limits: {max_scans: 50}\n";
  EXPECT_NE(digest(CacheKind::kCoefficients, few), digest(CacheKind::kCoefficients, many));
  EXPECT_EQ(digest(CacheKind::kBytes, few), digest(CacheKind::kBytes, many));
}

// --- the choice
// -----------------------------------------------------------------------------------------

class TheChoice : public ::testing::Test {
 protected:
  CacheChoice Choose(const std::string& more, int64_t memory, int64_t disk) {
    const auto pipeline = LoadPipeline(absl::StrCat(kYaml, more),
                                       std::make_shared<FakeDataset>(FakeDataset::Options{}));
    return ChooseCache(pipeline->spec, *pipeline->dataset, *pipeline->plan, memory, disk);
  }
};

TEST_F(TheChoice, TakesWhatThePipelineAsksFor) {
  EXPECT_EQ(Choose("cache: {kind: none}\n", 1 << 30, 0).kind, CacheKind::kNone);
  EXPECT_EQ(Choose("cache: {kind: bytes}\n", 1 << 30, 0).kind, CacheKind::kBytes);
}

TEST_F(TheChoice, KeepsSmallRecordsThatFitIntoMemoryAndNoOthers) {
  EXPECT_EQ(Choose("", 1 << 30, 0).kind, CacheKind::kBytes);
  EXPECT_EQ(Choose("", 100, 0).kind, CacheKind::kNone);
  EXPECT_THAT(Choose("", 100, 0).reason, HasSubstr("do not fit"));
}

TEST_F(TheChoice, SaysWhenThereIsNoRoom) {
  EXPECT_EQ(Choose("", 0, 0).kind, CacheKind::kNone);
  EXPECT_THAT(Choose("", 0, 0).reason, HasSubstr("cache.ram"));
  EXPECT_EQ(Choose("cache: {kind: bytes, ram: 0, disk: 0}\n", 1 << 30, 1 << 30).kind,
            CacheKind::kNone);
}

TEST_F(TheChoice, CannotKeepCoefficientsOfWhatIsNoImage) {
  const CacheChoice choice = Choose("cache: {kind: coefficients}\n", 1 << 30, 0);
  EXPECT_EQ(choice.kind, CacheKind::kBytes);
  EXPECT_THAT(choice.reason, HasSubstr("no field is an image"));
}

}  // namespace
}  // namespace feedwater::server
