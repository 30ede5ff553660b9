// Datasets of which nothing, one in ten thousand, one in a hundred, or everything is bad, under
// every policy: what each rank gets, where it fails, and what is counted are worked out here from
// the order alone, and must not depend on the engine or on the number of workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/pipeline/runtime.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/plain_slot_pool.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 64, kWorld = 2, kSlots = 3, kRecordBytes = 16;
enum Output { kData, kLabel, kSampleId, kPosition, kIsReal };

std::string Yaml(const std::string& policy, const std::string& more) {
  return absl::StrCat(
      "version: 1\ndataset: {format: image_folder, root: r, path: p}\n",
      "sampler: {shuffle: full, last: partial}\n",
      "outputs: [data, label, sample_id, position, is_real]\non_bad_sample: ", policy, "\n", more);
}

// What one rank must get, up to its failure.
struct Expected {
  struct Place {
    int64_t position = 0, record = 0, stood_in = -1;
    bool is_bad = false;
  };
  std::vector<std::vector<Place>> batches;
  int64_t failed_record = -1;  // of the batch behind them; -1: there is none
  int64_t bad = 0;             // counted, the failed batch included
};

Expected Work(const EpochOrder& order, int64_t rank, int64_t records, const std::set<int64_t>& bad,
              BadSamplePolicy policy, int64_t allowed, int64_t steps) {
  Expected expected;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Expected::Place> batch;
    for (int64_t k = 0; k < order.BatchSamples(step, rank); ++k) {
      const Placement placement = order.At(step, rank, k);
      Expected::Place place = {placement.position, placement.record, placement.record,
                               bad.count(placement.record) > 0};
      for (int64_t tries = 1; tries <= 100 && bad.count(place.stood_in) > 0; ++tries) {
        place.stood_in = order.RecordAt((place.position + tries) % records);
      }
      if (bad.count(place.stood_in) > 0) place.stood_in = -1;
      if (place.is_bad) {
        ++expected.bad;
        const bool gives_up = policy == BadSamplePolicy::kFail ||
                              (policy == BadSamplePolicy::kSubstitute && place.stood_in < 0);
        if (gives_up || expected.bad > allowed) {
          expected.failed_record = place.record;
          return expected;
        }
      }
      batch.push_back(place);
    }
    expected.batches.push_back(std::move(batch));
  }
  return expected;
}

void ExpectBatch(const SeenBatch& seen, const std::vector<Expected::Place>& places,
                 BadSamplePolicy policy) {
  const bool skips = policy == BadSamplePolicy::kSkipWithCount;
  ASSERT_EQ(seen.meta.samples, places.size());
  uint32_t bad = 0;
  for (size_t k = 0; k < places.size(); ++k) {
    const Expected::Place& place = places[k];
    bad += place.is_bad;
    ASSERT_EQ(seen.Int64s(kPosition)[k], place.position);
    ASSERT_EQ(seen.Int64s(kSampleId)[k], skips ? place.record : place.stood_in);
    ASSERT_EQ(seen.Int64s(kLabel)[k], place.stood_in < 0 ? 0 : place.stood_in * 10);
    ASSERT_EQ(seen.outputs[kIsReal][k] != 0, !(place.is_bad && skips));
    for (int64_t i = 0; i < kRecordBytes; ++i) {
      ASSERT_EQ(static_cast<uint8_t>(seen.outputs[kData][k * kRecordBytes + i]),
                place.stood_in < 0 ? 0 : FakeDataset::ByteOf(place.stood_in, i));
    }
  }
  EXPECT_EQ(seen.meta.substituted, bad);
  EXPECT_EQ(seen.meta.skipped, skips);
  EXPECT_EQ(seen.meta.real_samples, places.size() - (skips ? bad : 0));
}

struct Case {
  const char* name;
  int64_t records, bad;
  const char* more;  // keys of the pipeline
};

class BadSamples : public ::testing::TestWithParam<Case> {};

TEST_P(BadSamples, AreCountedExactlyAndGiveTheSameBytesUnderEveryPolicy) {
  const Case& param = GetParam();
  std::set<int64_t> bad;
  for (std::mt19937 random(1); static_cast<int64_t>(bad.size()) < param.bad;) {
    bad.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(param.records)));
  }
  const auto parse = [&](int64_t record) {
    return bad.count(record) > 0 ? absl::DataLossError("damaged") : absl::OkStatus();
  };
  for (const auto policy :
       {BadSamplePolicy::kFail, BadSamplePolicy::kSubstitute, BadSamplePolicy::kSkipWithCount}) {
    const JobConfig job =
        TestJob(LoadPipeline(Yaml(std::string(BadSamplePolicyName(policy)), param.more),
                             std::make_shared<FakeDataset>(
                                 FakeDataset::Options{.records = param.records, .parse = parse})),
                kBatch, kWorld);
    OrderConfig made = *MakeOrderConfig(job.pipeline->spec.sampler, param.records, kBatch, kWorld,
                                        job.pipeline->dataset->shard_starts());
    made.seed = job.seed;
    const auto config = std::make_shared<const OrderConfig>(made);
    const EpochOrder order(config, 0, 0);
    const double fraction = job.pipeline->spec.max_bad_fraction;

    std::string first_run;
    for (const std::string& engine : WorkingEngines()) {
      for (int workers : {1, 2, 8}) {
        SCOPED_TRACE(absl::StrCat(BadSamplePolicyName(policy), ", ", engine, ", ", workers));
        RuntimeOptions options = TestRuntimeOptions(workers, engine);
        options.bad_samples = BadSampleLog::Open("");
        auto runtime = Runtime::Create(options);
        ASSERT_TRUE(runtime.ok()) << runtime.status();
        std::vector<TestRank> ranks;
        std::string run;
        for (int64_t rank = 0; rank < kWorld; ++rank)
          ranks.push_back(AttachRank(**runtime, job, rank, kSlots));
        std::vector<Expected> expected;
        uint64_t failed = 0, counted = 0;
        for (int64_t rank = 0; rank < kWorld; ++rank) {
          expected.push_back(Work(order, rank, param.records, bad, policy,
                                  AllowedBadSamples(fraction, SamplesPerEpoch(*config, rank)),
                                  order.steps()));
        }
        for (int64_t step = 0; step < order.steps(); ++step) {
          for (int64_t rank = 0; rank < kWorld; ++rank) {
            const auto steps = static_cast<int64_t>(expected[rank].batches.size());
            if (step > steps) continue;
            const auto event = ranks[rank].slots->Next();
            ASSERT_TRUE(event.has_value());
            ASSERT_EQ(event->meta.step, step);
            if (step == steps) {
              ++failed;
              ASSERT_EQ(event->slot, -1);
              EXPECT_EQ(event->failure.record, expected[rank].failed_record);
              EXPECT_EQ(event->failure.status.code(), absl::StatusCode::kDataLoss);
              absl::StrAppend(&run, event->failure.status.ToString(), "\n");
              continue;
            }
            ASSERT_GE(event->slot, 0) << event->failure.status;
            const SeenBatch seen = ranks[rank].Copy(*event);
            ranks[rank].slots->Release(event->slot);
            ExpectBatch(seen, expected[rank].batches[step], policy);
            if (HasFatalFailure()) return;
            absl::StrAppend(&run, seen.Text(), "\n");
          }
        }
        if (first_run.empty()) first_run = run;
        EXPECT_EQ(run, first_run);
        EXPECT_EQ(failed, policy == BadSamplePolicy::kFail && param.bad > 1 ? kWorld : failed);

        // The epoch is counted exactly; where no rank has failed, so is what stands in the slots of
        // the next one.
        uint64_t batches = 0;
        for (int64_t rank = 0; rank < kWorld; ++rank) {
          batches += expected[rank].batches.size();
          counted += static_cast<uint64_t>(expected[rank].bad);
          if (expected[rank].failed_record >= 0) continue;
          const EpochOrder next(config, 1, 0);
          const Expected ahead = Work(next, rank, param.records, bad, policy,
                                      AllowedBadSamples(fraction, SamplesPerEpoch(*config, rank)),
                                      std::min(kSlots, next.steps()));
          batches += ahead.batches.size();
          counted += static_cast<uint64_t>(ahead.bad);
        }
        const auto stats = [&] { return (*runtime)->Snapshot()[0]; };
        for (const int64_t until = MonotonicNs() + 20'000'000'000;
             (stats().batches < batches || stats().bad_samples < counted) && MonotonicNs() < until;)
          usleep(1000);
        EXPECT_EQ(stats().batches, batches);
        EXPECT_EQ(stats().bad_samples, counted);
        runtime->reset();  // its workers have told the log
        uint64_t in_log = 0;
        for (const BadSampleLog::Entry& entry : options.bad_samples->Get().entries) {
          in_log += entry.count;
          EXPECT_EQ(bad.count(entry.record), 1u);
          EXPECT_EQ(entry.reason, "damaged");
          EXPECT_EQ(entry.path, "records.bin");
          EXPECT_EQ(entry.offset, entry.record * kRecordBytes);
          EXPECT_EQ(entry.length, kRecordBytes);
        }
        EXPECT_EQ(in_log, counted);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, BadSamples,
                         ::testing::Values(Case{"none", 10'000, 0, ""},
                                           Case{"one_in_10000", 10'000, 1, ""},
                                           Case{"one_in_100", 10'000, 100, "max_bad_fraction: 1\n"},
                                           Case{"over_the_limit", 10'000, 100, ""},
                                           Case{"all", 400, 400, "max_bad_fraction: 1\n"},
                                           Case{"all_over_the_limit", 400, 400, ""}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MaxBadFraction, LetsAFewPassWhateverItIs) {
  EXPECT_EQ(AllowedBadSamples(0.001, 1'000'000), 1000);
  EXPECT_EQ(AllowedBadSamples(0.29, 100), 29);
  EXPECT_EQ(AllowedBadSamples(0.001, 10'000), 32);
  EXPECT_EQ(AllowedBadSamples(0.001, 100), 25) << "never more than a quarter";
  EXPECT_EQ(AllowedBadSamples(0.001, 3), 1);
  EXPECT_EQ(AllowedBadSamples(0, 1'000'000), 0) << "0 is none at all";
  EXPECT_EQ(AllowedBadSamples(1, 7), 7);
}

TEST(MaxBadFraction, TellsFractionLimitReportAndCureAndStandsUntilMoved) {
  const auto parse = [](int64_t record) {
    return record % 10 < 4 ? absl::DataLossError("cut short") : absl::OkStatus();
  };
  const JobConfig job = TestJob(
      LoadPipeline("version: 1\ndataset: {format: image_folder, root: r, path: p}\nsampler: "
                   "{shuffle: none}\n"
                   "outputs: [data, label]\non_bad_sample: substitute\nmax_bad_fraction: 0.02\n",
                   std::make_shared<FakeDataset>(FakeDataset::Options{.parse = parse})),
      10);
  auto runtime = Runtime::Create(TestRuntimeOptions(2));
  ASSERT_TRUE(runtime.ok());
  TestRank rank = AttachRank(**runtime, job, 0, 4);
  for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(rank.Next().meta.substituted, 4u);
  const auto failed = rank.slots->Next();  // the 26th bad sample of 100: record 61
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->slot, -1);
  EXPECT_EQ(failed->meta.step, 6);
  EXPECT_EQ(failed->failure.record, 61);
  EXPECT_EQ(failed->failure.path, "records.bin");
  for (const char* part : {"26 of this rank's 100 samples of epoch 0", "max_bad_fraction = 0.02",
                           "allows (25)", "feedwater status --bad", "raise", "cut short"}) {
    EXPECT_THAT(std::string(failed->failure.status.message()), HasSubstr(part));
  }
  EXPECT_FALSE(rank.slots->Next(absl::Milliseconds(50)).has_value()) << "the stream stands still";
  EXPECT_TRUE(rank.slots->WaitUntilAllFree());
  ASSERT_TRUE((*runtime)->Seek(rank.stream, 1, 0, 70).ok());
  EXPECT_EQ(rank.Next().meta.step, 7) << "the count starts where the stream starts";
  EXPECT_THAT(rank.slots->violations(), ElementsAre());
}

// Found for its own sample, before it meets others in their batch.
TEST(BadSamples, AClassThatABatchOpDoesNotKnowIsOne) {
  const auto dataset = std::make_shared<FakeDataset>(FakeDataset::Options{.records = 12});
  const JobConfig job = TestJob(
      LoadPipeline("version: 1\ndataset: {format: image_folder, root: r, path: p}\nsampler: "
                   "{shuffle: none}\nbatch: {graph: [mixup: {in: [data, label], num_classes: "
                   "100}]}\noutputs: [sample_id, data, label]\non_bad_sample: "
                   "substitute\nmax_bad_fraction: 1\n",
                   dataset),
      12);
  RuntimeOptions options = TestRuntimeOptions(2);
  options.bad_samples = BadSampleLog::Open("");
  auto runtime = Runtime::Create(options);
  ASSERT_TRUE(runtime.ok());
  TestRank rank = AttachRank(**runtime, job, 0, 1);
  const SeenBatch batch = rank.Next();
  EXPECT_THAT(batch.Int64s(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0));
  EXPECT_EQ(batch.meta.substituted, 2u);
  const auto report = options.bad_samples->Get();
  ASSERT_EQ(report.entries.size(), 2u);
  for (const auto& entry : report.entries) {
    EXPECT_EQ(entry.path, "records.bin");
    EXPECT_EQ(entry.reason, absl::StrCat("mixup: class ", entry.record * 10, " is outside 0..99"));
  }
}

TEST(Quarantined, SamplesAreBadWithoutBeingTouched) {
  const auto parse = [](int64_t record) {
    EXPECT_NE(record, 7) << "it would end the daemon";
    return absl::OkStatus();
  };
  const auto dataset = std::make_shared<FakeDataset>(FakeDataset::Options{.parse = parse});
  const JobConfig job = TestJob(LoadPipeline("version: 1\ndataset: {format: image_folder, root: r, "
                                             "path: p}\nsampler: {shuffle: none}\n"
                                             "outputs: [sample_id]\non_bad_sample: substitute\n",
                                             dataset),
                                10);
  RuntimeOptions options = TestRuntimeOptions(2);
  options.bad_samples = BadSampleLog::Open("");
  options.bad_samples->AddCrash(dataset->digest(), 7, "records.bin", 112, 16, SIGSEGV);
  EXPECT_EQ(options.bad_samples->WhyQuarantined(dataset->digest(), 7), "") << "once is not enough";
  options.bad_samples->AddCrash(dataset->digest(), 7, "records.bin", 112, 16, SIGSEGV);
  auto runtime = Runtime::Create(options);
  ASSERT_TRUE(runtime.ok());
  TestRank rank = AttachRank(**runtime, job, 0, 1);
  EXPECT_THAT(rank.Next().Int64s(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 8, 8, 9));
  const auto report = options.bad_samples->Get();
  ASSERT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].crashes, 2);
  EXPECT_EQ(report.entries[0].stood_in, 8);
  EXPECT_THAT(report.entries[0].reason, HasSubstr("put aside"));
}

}  // namespace
}  // namespace feedwater::server
