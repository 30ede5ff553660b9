// A pipeline of which a cache keeps what its graph's prefix makes gives the bytes that it gives
// without one: for prefixes of every kind, from memory and from disk, with damaged images, damaged
// blocks, and pipelines beside it that share the cache or must not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/cache/cache.h"
#include "server/pipeline/cache_choice.h"
#include "tests/storage/temp_folder.h"
#include "tests/testing/test_images.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;
using ::feedwater::testing::DrawImage;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::RunSteps;
using ::feedwater::testing::SeenBatch;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;

constexpr int64_t kRecords = 21, kBatch = 7, kSteps = 9;  // three epochs
constexpr const char* kNormalize =
    "  - normalize: {mean: [120, 115, 100], std: [58, 57, 57], dtype: float32, layout: CHW}\n";

using Seen = std::vector<std::vector<SeenBatch>>;

std::string Yaml(const std::string& graph, const std::string& more = "") {
  return absl::StrCat(
      "version: 1\ndataset: {format: image_folder, root: root, path: photos}\n"
      "sampler: {shuffle: full, seed: 3}\ngraph:\n  - decode: {in: data, out: image}\n",
      graph, more.empty() ? "outputs: [image, label, sample_id, position]\n" : more);
}

const std::string kCrops =  // NOLINT: a test's constant
    absl::StrCat("  - random_resized_crop: {size: [48, 48]}\n  - random_horizontal_flip: {}\n",
                 kNormalize);
const std::string kResized =  // NOLINT: a test's constant
    absl::StrCat("  - resize: {size: [40, 44]}\n  - random_crop: {size: 32, padding: 2}\n",
                 kNormalize);
const std::string kAllFixed =  // NOLINT: a test's constant
    absl::StrCat("  - resize: {size: 36}\n  - center_crop: {size: 32}\n", kNormalize);

class DecodedCache : public ::testing::Test {
 protected:
  DecodedCache() { ::feedwater::testing::WriteImageFolder(temp_ / "photos", 3, 7); }

  Cache::Options Options(int64_t memory, int64_t disk) {
    return {
        .memory_bytes = memory, .disk_bytes = disk, .state_dir = temp_.path(), .budget = nullptr};
  }

  // Runs the pipeline with a cache (or without, with null), and leaves what the cache counted in
  // counts_.
  Seen Run(const std::string& yaml, Cache* cache, const std::string& engine = "pread",
           int64_t steps = kSteps) {
    DatasetOptions options;
    options.roots = temp_.AsRoot();
    const auto dataset = OpenDataset(ParsePipeline(yaml, "photos.yaml")->dataset, options);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(yaml, *dataset));
    if (cache != nullptr) {
      pipeline->Keep(CacheKind::kDecoded);
      const std::string form = pipeline->kept.name;
      pipeline->cache = *cache->Get({"photos", form, (*dataset)->size(), 64 << 20, 64 << 20});
    }
    Seen seen = RunSteps(TestRuntimeOptions(2, engine), TestJob(pipeline, kBatch), steps);
    if (cache != nullptr) {
      pipeline->cache->Flush();
      counts_ = pipeline->cache->counts();
    }
    return seen;
  }

  void SpoilSegments(size_t first, size_t step) {
    for (const auto& entry : fs::recursive_directory_iterator(temp_.path() + "/cache")) {
      if (entry.path().filename().string().rfind("segment", 0) != 0) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      for (uint64_t at = first; at < fs::file_size(entry.path()); at += step) {
        file.seekp(static_cast<std::streamoff>(at));
        file.put('\xA5');
      }
    }
  }

  TempFolder temp_;
  RecordCache::Counts counts_;
};

TEST_F(DecodedCache, GivesTheBytesOfTheFilesFromMemoryAndAfterARestartFromDisk) {
  for (const std::string& graph : {kCrops, kResized, kAllFixed}) {
    const std::string yaml = Yaml(graph);
    SCOPED_TRACE(yaml);
    const Seen plain = Run(yaml, nullptr);
    for (const std::string& engine : WorkingEngines()) {
      SCOPED_TRACE(engine);
      fs::remove_all(temp_.path() + "/cache");
      {
        Cache cache(Options(64 << 20, 64 << 20));
        EXPECT_EQ(Run(yaml, &cache, engine), plain);
        EXPECT_EQ(counts_.memory_records, kRecords);
        EXPECT_EQ(counts_.disk_records, kRecords);
        EXPECT_GT(counts_.memory_hits, static_cast<uint64_t>(kRecords) / 2);
      }
      Cache cache(Options(0, 64 << 20));
      EXPECT_EQ(Run(yaml, &cache, engine), plain);
      EXPECT_EQ(counts_.misses, 0u);
    }
  }
}

// Its pixels depend on the resize behind it, which for a random crop is carried out in every epoch.
TEST_F(DecodedCache, GivesTheBytesOfADecodeThatScales) {
  for (const char* rest : {"  - random_resized_crop: {size: [6, 7]}\n",
                           "  - resize: {size: [12, 13]}\n  - random_crop: {size: 8}\n"}) {
    const std::string exact = Yaml(rest);
    const std::string yaml = absl::StrReplaceAll(
        exact, {{"decode: {in: data,", "decode: {fast_scale: true, in: data,"}});
    SCOPED_TRACE(yaml);
    const Seen plain = Run(yaml, nullptr);
    EXPECT_FALSE(plain == Run(exact, nullptr));
    Cache cache(Options(64 << 20, 0));
    EXPECT_EQ(Run(yaml, &cache), plain);
    EXPECT_EQ(Run(yaml, &cache), plain);
    EXPECT_EQ(counts_.memory_records, kRecords);
  }
}

TEST_F(DecodedCache, KeepsAllFieldsOfSeveralViews) {
  const std::string yaml = Yaml(
      "  - center_crop: {out: small, size: 20}\n  - random_resized_crop: {out: a, size: [16, 16]}\n"
      "  - random_crop: {in: small, out: b, size: 16}\n  - one_hot: {in: label, out: target}\n",
      "outputs: [small, a, b, target, is_real]\n");
  Cache cache(Options(64 << 20, 0));
  const Seen plain = Run(yaml, nullptr);
  EXPECT_EQ(Run(yaml, &cache), plain);
  EXPECT_EQ(Run(yaml, &cache), plain);
  EXPECT_EQ(counts_.memory_records, kRecords);
}

// A prefix decodes all of an image and the whole graph only what a crop leaves of it: damage below
// the crop is for the latter alone to judge.
TEST_F(DecodedCache, LeavesTheVerdictOnDamagedImagesToTheWholeGraph) {
  for (int i = 0; i < 4; ++i) {
    std::string image = DrawImage(40 + i, 120, 160, i == 3 ? ".png" : ".jpg");
    if (i == 0) image.resize(image.size() / 2);
    if (i == 1) image.resize(image.size() * 9 / 10);
    if (i == 2) image[image.size() * 2 / 3] = '\xFF';
    if (i == 3) image.resize(image.size() / 3);
    temp_.Write(absl::StrCat("photos/c0/damaged", i, i == 3 ? ".png" : ".jpg"), image);
  }
  const std::string yaml = Yaml(kCrops, "outputs: [image, label]\non_bad_sample: substitute\n");
  Cache cache(Options(64 << 20, 0));
  const int64_t steps = 15;
  const Seen plain = Run(yaml, nullptr, "pread", steps);
  int64_t substituted = 0;
  for (const auto& step : plain) substituted += step[0].meta.substituted;
  EXPECT_GT(substituted, 0);
  EXPECT_EQ(Run(yaml, &cache, "pread", steps), plain);
  EXPECT_EQ(Run(yaml, &cache, "pread", steps), plain);
  EXPECT_GE(counts_.memory_records, kRecords);
  EXPECT_LT(counts_.memory_records, kRecords + 4);
}

TEST_F(DecodedCache, ReadsRecordsAnewWhenTheDisksBlocksAreDamaged) {
  const std::string yaml = Yaml(kResized);
  const Seen plain = Run(yaml, nullptr);
  {
    Cache cache(Options(0, 64 << 20));
    Run(yaml, &cache);
    ASSERT_EQ(counts_.disk_records, kRecords);
  }
  SpoilSegments(/*first=*/500, /*step=*/6000);
  Cache cache(Options(0, 64 << 20));
  EXPECT_EQ(Run(yaml, &cache), plain);
  EXPECT_GT(counts_.damaged, 5u);
  EXPECT_EQ(counts_.disk_records, kRecords) << "what was damaged is kept again";
}

TEST_F(DecodedCache, ReadsRecordsAnewWhenTheirFileHasChanged) {
  const std::string yaml = Yaml(kResized);
  const std::string photo = temp_ / "photos/c0/3.png";
  {
    Cache cache(Options(0, 64 << 20));
    Run(yaml, &cache);
  }
  const auto size = fs::file_size(photo);
  std::string other = DrawImage(999, 40, 44, ".png");
  ASSERT_LE(other.size(), size + 4096);
  other.resize(size);  // the same size, so that the index still holds
  std::ofstream(photo, std::ios::binary) << other;
  Cache cache(Options(0, 64 << 20));
  EXPECT_EQ(Run(yaml, &cache), Run(yaml, nullptr));
}

TEST_F(DecodedCache, KeepsAsMuchAsThereIsRoomFor) {
  const std::string yaml = Yaml(kCrops);
  Cache cache(Options(100'000, 0));
  EXPECT_EQ(Run(yaml, &cache), Run(yaml, nullptr));
  EXPECT_GT(counts_.memory_records, 0);
  EXPECT_LT(counts_.memory_records, kRecords);
}

TEST_F(DecodedCache, IsSharedByPipelinesThatBeginAlikeAndByNoOthers) {
  Cache cache(Options(256 << 20, 256 << 20));
  const std::string crops = Yaml(kCrops), resized = Yaml(kResized);
  const std::string other_crops =
      Yaml("  - random_crop: {size: 32, pad_if_needed: true}\n  - color_jitter: {hue: 0.1}\n",
           "outputs: [label, image]\n");
  Run(crops, &cache);
  const RecordCache::Counts first = counts_;
  EXPECT_EQ(Run(other_crops, &cache), Run(other_crops, nullptr));
  EXPECT_EQ(counts_.misses, first.misses) << "found everything that the first one has kept";
  EXPECT_EQ(Run(resized, &cache), Run(resized, nullptr));
  EXPECT_GE(counts_.misses, static_cast<uint64_t>(kRecords));
  EXPECT_LT(counts_.memory_bytes, first.memory_bytes);
  EXPECT_EQ(cache.Statuses().size(), 2u);
}

// --- the choice
// -----------------------------------------------------------------------------------------

class TheChoice : public ::testing::Test {
 protected:
  CacheChoice Choose(const std::string& extension, const std::string& graph, int64_t memory,
                     const std::string& more = "") {
    TempFolder temp;
    for (int i = 0; i < 8; ++i) {
      temp.Write(absl::StrCat("photos/c", i % 2, "/", i, extension),
                 DrawImage(i, 100, 100, extension));
    }
    const std::string yaml = absl::StrCat(Yaml(graph, "outputs: [image, label]\n"), more);
    DatasetOptions options;
    options.roots = temp.AsRoot();
    const auto dataset = OpenDataset(ParsePipeline(yaml, "photos.yaml")->dataset, options);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    const auto pipeline = LoadPipeline(yaml, *dataset);
    return ChooseCache(pipeline->spec, *pipeline->dataset, *pipeline->plan, memory, 0);
  }
};

const char kSmall[] = "  - resize: {size: [16, 16]}\n  - random_horizontal_flip: {}\n";
const char kLarge[] = "  - resize: {size: [99, 99]}\n  - random_horizontal_flip: {}\n";

TEST_F(TheChoice, IsPixelsThatAreSmallerThanTheirFiles) {
  for (const char* extension : {".jpg", ".png"}) {
    const CacheChoice choice = Choose(extension, kSmall, 1 << 30);
    EXPECT_EQ(choice.kind, CacheKind::kDecoded) << choice.reason;
    EXPECT_THAT(choice.reason, HasSubstr("what decode + resize makes"));
  }
}

TEST_F(TheChoice, IsLargerPixelsOnlyForImagesWithoutCoefficientsAndWhereTheyFit) {
  EXPECT_EQ(Choose(".png", kLarge, 1 << 30).kind, CacheKind::kDecoded);
  EXPECT_EQ(Choose(".png", kLarge, 100'000).kind, CacheKind::kCoefficients);
  EXPECT_EQ(Choose(".jpg", kLarge, 1 << 30).kind, CacheKind::kCoefficients);
  EXPECT_EQ(Choose(".png", kCrops, 1 << 30).kind, CacheKind::kCoefficients);
}

TEST_F(TheChoice, IsPixelsWhenThePipelineAsksForThem) {
  const CacheChoice choice = Choose(".jpg", kCrops, 1 << 30, "cache: {kind: decoded}\n");
  EXPECT_EQ(choice.kind, CacheKind::kDecoded);
  EXPECT_THAT(choice.reason, HasSubstr("asks for it; what decode makes of a record"));
  EXPECT_EQ(Choose(".jpg", kCrops, 1 << 30, "cache: {kind: decoded, ram: 0}\n").kind,
            CacheKind::kNone);
}

// The reason goes into every answer about the job.
TEST_F(TheChoice, IsExplainedInFewWordsAlsoForALongGraph) {
  std::string graph;
  for (int i = 0; i < 100; ++i)
    absl::StrAppend(&graph, "  - resize: {size: [", 16 + i % 2, ", 16]}\n");
  const CacheChoice choice = Choose(".png", graph, 1 << 30, "cache: {kind: decoded}\n");
  EXPECT_THAT(choice.reason, HasSubstr("decode + resize + "));
  EXPECT_THAT(choice.reason, HasSubstr(" + 93 more ops makes of a record"));
  EXPECT_LT(choice.reason.size(), 512u);
}

}  // namespace
}  // namespace feedwater::server
