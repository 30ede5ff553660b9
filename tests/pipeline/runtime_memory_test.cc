// The runtime with samples that take long, and what jobs reserve of the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/pipeline/runtime.h"
#include "tests/pipeline/runtime_testing.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/plain_slot_pool.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::PlainSlotPool;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::testing::HasSubstr;

// A graph that takes long: `ops` passes over images of `side` squared, made of the record's bytes.
JobConfig HeavyJob(int side, int ops, const std::string& more = "") {
  FakeDataset::Options dataset;
  dataset.record_bytes = 12;
  dataset.is_image = true;
  std::string graph =
      absl::StrCat("- resize: {in: data, out: image, size: [", side, ", ", side, "]}\n");
  for (int i = 0; i < ops; ++i) absl::StrAppend(&graph, "- random_equalize: {p: 1}\n");
  absl::StrAppend(&graph, "- center_crop: {size: 1}\n");
  return FakeJob(
      std::move(dataset),
      absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\ngraph:\n", graph,
                   "outputs: [image, sample_id]\n", more),
      1);
}

TEST(SlowSample, IsBadOnceItTakesMoreThanItsCpuTime) {
  auto runtime = MakeRuntime(1);
  TestRank rank = AttachRank(*runtime, HeavyJob(1000, 200, "limits: {max_sample_ms: 100}\n"), 0, 1);
  const auto event = rank.slots->Next(absl::Seconds(60));
  ASSERT_TRUE(event.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(event->failure.status)) << event->failure.status;
  EXPECT_THAT(std::string(event->failure.status.message()), HasSubstr("max_sample_ms"));
}

TEST(SlowSample, ShowsProgressWhileItIsMadeAndEndsWithItsJob) {
  auto runtime = MakeRuntime(1);
  TestRank rank =
      AttachRank(*runtime, HeavyJob(3000, 250, "limits: {max_sample_ms: 600000}\n"), 0, 1);
  const int64_t deadline = MonotonicNs() + 60'000'000'000;
  const auto comes = [&](auto condition) {
    while (!condition() && MonotonicNs() < deadline) usleep(1000);
    return condition();
  };
  const uint64_t start = runtime->progress();
  EXPECT_TRUE(comes([&] { return runtime->progress() > start + 10; }));
  EXPECT_FALSE(rank.slots->Next(absl::ZeroDuration()).has_value());
  runtime->Detach(rank.stream);  // all passes would take long
  EXPECT_TRUE(comes([&] { return runtime->active_workers() == 0; }));
}

TEST(Memory, OfAGraphIsReservedForEveryWorkerAndGivenBack) {
  RuntimeOptions options = TestRuntimeOptions(2);
  options.shares = std::make_shared<UserShares>(MemoryBudget::Create(256 << 20));
  auto runtime = *Runtime::Create(options);
  const int64_t idle = options.shares->whole()->planned_bytes();
  TestRank rank = AttachRank(*runtime, HeavyJob(1500, 1), 0, 2);
  const int64_t image = 1500 * 1500 * 3;
  EXPECT_GE(options.shares->whole()->planned_bytes() - idle, 2 * image);
  EXPECT_LE(options.shares->whole()->planned_bytes() - idle, 2 * (image + (4 << 20)));
  EXPECT_GT(runtime->Snapshot()[0].workers, 2) << "all";
  rank.Next();
  runtime->Detach(rank.stream);
  rank.stream = nullptr;
  const int64_t deadline = MonotonicNs() + 30'000'000'000;
  while (options.shares->whole()->planned_bytes() != idle && MonotonicNs() < deadline) usleep(1000);
  EXPECT_EQ(options.shares->whole()->planned_bytes(), idle);
}

// Each decoder process makes the filters of its ops anew. Without slots none is started.
TEST(Memory, OfWhatOpsKeepIsTakenForEachDecoderProcess) {
  const auto planned = [](const std::string& ops, int64_t* tables) {
    JobConfig job = FakeJob(
        {.record_bytes = 100},
        absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\ngraph:\n"
                     "- cast: {in: data, out: audio, dtype: float32}\n",
                     ops, "outputs: [audio]\n"),
        1);
    job.isolated = true;
    *tables = job.pipeline->plan->table_bytes();
    RuntimeOptions options = TestRuntimeOptions(2);
    options.shares = std::make_shared<UserShares>(MemoryBudget::Create(1 << 30));
    auto runtime = *Runtime::Create(options);
    TestRank rank = AttachRank(*runtime, job, 0, /*slots=*/0);
    return options.shares->whole()->planned_bytes();
  };
  int64_t no_tables = 0, tables = 0;
  const int64_t without = planned("", &no_tables);
  const int64_t with =
      planned("- resample: {in: audio, orig_freq: 65535, new_freq: 65536}\n", &tables);
  EXPECT_EQ(no_tables, 0);
  EXPECT_GT(tables, 3 << 20);
  EXPECT_GE(with - without, 2 * tables);
}

// A job's files are its own, whoever joins it: the budget has room for them once.
TEST(Memory, IsNotTakenForTheFilesOfARankThatJoins) {
  const JobConfig job =
      TestJob(LoadPipeline("version: 1\ndataset: {format: image_folder, root: r, path: p}\n"
                           "outputs: [data]\n",
                           std::make_shared<FakeDataset>(FakeDataset::Options{})),
              4, /*world_size=*/2);
  const auto planned = [&](int64_t limit) {
    RuntimeOptions options = TestRuntimeOptions(1);
    options.shares = std::make_shared<UserShares>(MemoryBudget::Create(limit));
    auto runtime = Runtime::Create(options);
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    TestRank first = AttachRank(**runtime, job, 0), second = AttachRank(**runtime, job, 1);
    return options.shares->whole()->planned_bytes();
  };
  const int64_t bytes = planned(1 << 30);
  EXPECT_EQ(planned(bytes), bytes);
}

// An entry for each shard, in several orders: a hostile list of files would take them unseen.
TEST(Memory, OfOrdersOfManyShardsIsPartOfTheSum) {
  FakeDataset::Options dataset{.records = 500'000, .record_bytes = 1};
  for (int64_t i = 0; i < dataset.records; ++i) dataset.shard_starts.push_back(i);
  const JobConfig job = FakeJob(std::move(dataset), Yaml("{shuffle: block}"), 8);
  const SlotLayout layout = *SlotLayout::Create(job.pipeline->plan->outputs(), 8, 1 << 20);
  int64_t idle = 0;
  const auto attach = [&](int64_t limit) {
    RuntimeOptions options = TestRuntimeOptions(1);
    options.shares = std::make_shared<UserShares>(MemoryBudget::Create(limit));
    auto runtime = *Runtime::Create(options);
    idle = options.shares->whole()->planned_bytes();
    auto stream = runtime->Attach(job, 0, 1, 0, 0, layout,
                                  std::make_shared<PlainSlotPool>(1, layout.slot_bytes));
    const auto taken = [&] { return options.shares->whole()->planned_bytes() - idle; };
    if (!stream.ok()) {  // the worker gives its room back when it comes to it
      const int64_t until = MonotonicNs() + 10'000'000'000;
      while (taken() > 0 && MonotonicNs() < until) usleep(1000);
    }
    const std::pair result(stream.status(), taken());
    if (stream.ok()) runtime->Detach(*stream);
    return result;
  };
  const auto [good, taken] = attach(1 << 30);
  EXPECT_TRUE(good.ok()) << good;
  EXPECT_GE(taken, 500'000 * (7 * 16 + 8)) << "two orders of the rank, five of its job";

  // A rank that joins takes its own two, and not even for a moment another five.
  JobConfig of_two = job;
  of_two.world_size = 2;
  RuntimeOptions options = TestRuntimeOptions(1);
  options.shares = std::make_shared<UserShares>(MemoryBudget::Create(idle + taken + taken / 2));
  auto runtime = *Runtime::Create(options);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto stream = runtime->Attach(of_two, rank, 1, 0, 0, layout,
                                  std::make_shared<PlainSlotPool>(1, layout.slot_bytes));
    ASSERT_TRUE(stream.ok()) << rank << ": " << stream.status();
    streams.push_back(*std::move(stream));
  }
  for (const auto& stream : streams) runtime->Detach(stream);

  const auto [refused, nothing] = attach(64 << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("orders"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("larger shards"));
  EXPECT_EQ(nothing, 0) << "what was taken until then has been given back";
}

// 20 MiB of text become 160 MiB of numbers, of which neither the plan knows nor the text before.
TEST(Memory, OfWhatIsMadeOfALongTextIsAskedForBeforeItIsTaken) {
  RuntimeOptions options = TestRuntimeOptions(1);
  options.shares = std::make_shared<UserShares>(MemoryBudget::Create(128 << 20));
  auto runtime = *Runtime::Create(options);
  TestRank rank = AttachRank(
      *runtime,
      FakeJob({.records = 2, .record_bytes = 20 << 20, .is_text = true},
              "version: 1\ndataset: {format: image_folder, root: r, path: p}\ngraph:\n"
              "- cast: {in: data, out: numbers, dtype: float64}\noutputs: [numbers_length]\n"
              "sampler: {shuffle: none}\n",
              1),
      0, 1);
  rank.Next();
  const auto event = rank.slots->Next(absl::Seconds(60));
  ASSERT_TRUE(event.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(event->failure.status)) << event->failure.status;
  EXPECT_THAT(std::string(event->failure.status.message()),
              HasSubstr("a sample of a record of 20.0 MiB takes 160.1 MiB while it is made"));
}

TEST(Memory, ThatIsThereForOneWorkerIsUsedByOne) {
  RuntimeOptions options = TestRuntimeOptions(2);
  options.shares =
      std::make_shared<UserShares>(MemoryBudget::Create(64 << 20));  // 32 MiB for reading
  auto runtime = *Runtime::Create(options);
  TestRank rank = AttachRank(*runtime, HeavyJob(2400, 1), 0, 2);  // one of 17.3 MB
  EXPECT_EQ(runtime->Snapshot()[0].workers, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(rank.Next().meta.step, i);

  const JobConfig large = HeavyJob(3700, 1);
  const SlotLayout layout = *SlotLayout::Create(large.pipeline->plan->outputs(), 1, 1 << 20);
  const auto refused = runtime->Attach(large, 0, 1, 0, 0, layout,
                                       std::make_shared<PlainSlotPool>(1, layout.slot_bytes));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("resize#1+random_equalize#2 39.2 MiB"));
}

}  // namespace
}  // namespace feedwater::server
