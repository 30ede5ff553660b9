// The runtime with real threads, engines and plans over a made-up dataset whose parsing a test can
// slow down, stop or make fail. What a batch must hold is worked out here from the sampler alone
// and compared byte by byte.
#include "server/pipeline/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "tests/pipeline/runtime_testing.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/plain_slot_pool.h"
#include "tests/testing/test_runtime.h"
#include "tests/testing/test_seed.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::PlainSlotPool;
using ::feedwater::testing::RunSteps;
using ::feedwater::testing::SeenBatch;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::feedwater::testing::WorkingEngines;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRecords = 100, kRecordBytes = 16;  // FakeDataset's defaults
enum Output { kData, kLabel, kSampleId, kPosition, kIsReal };

// A gate that workers stand at until the test opens it.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  void Pass() {
    MutexLock lock(&mu_);
    ++waiting_;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void AwaitSomebody() {
    MutexLock lock(&mu_);
    while (waiting_ == 0) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
};

OrderConfig ConfigOf(const JobConfig& job) {
  OrderConfig config =
      *MakeOrderConfig(job.pipeline->spec.sampler, job.pipeline->dataset->size(), job.batch_size,
                       job.world_size, job.pipeline->dataset->shard_starts());
  config.seed = job.seed;
  return config;
}

// What the batch must hold when the records at `bad` cannot be used.
void ExpectBatch(const SeenBatch& seen, const EpochOrder& order, int64_t step, int64_t rank,
                 const std::set<int64_t>& bad = {}) {
  const auto places = static_cast<int64_t>(seen.meta.samples);
  ASSERT_EQ(places, order.BatchSamples(step, rank));
  int64_t real = 0, substituted = 0;
  for (int64_t k = 0; k < places; ++k) {
    const Placement place = order.At(step, rank, k);
    int64_t record = place.record;
    for (int64_t next = 1; bad.count(record) > 0; ++next) {
      record = order.RecordAt((place.position + next) % kRecords);
    }
    substituted += record != place.record;
    real += place.is_real;
    EXPECT_EQ(seen.Int64s(kSampleId)[k], record);
    EXPECT_EQ(seen.Int64s(kLabel)[k], record * 10);
    EXPECT_EQ(seen.Int64s(kPosition)[k], place.position);
    EXPECT_EQ(seen.outputs[kIsReal][k] != 0, place.is_real);
    for (int64_t i = 0; i < kRecordBytes; ++i) {
      ASSERT_EQ(static_cast<uint8_t>(seen.outputs[kData][k * kRecordBytes + i]),
                FakeDataset::ByteOf(record, i));
    }
  }
  EXPECT_EQ(seen.meta.real_samples, real);
  EXPECT_EQ(seen.meta.substituted, substituted);
}

struct Case {
  std::string sampler;
  int64_t batch_size, world_size;
};

class EveryOrder : public ::testing::TestWithParam<Case> {};

TEST_P(EveryOrder, GivesThePromisedBytesForAnyNumberOfWorkersAndEngine) {
  const Case& param = GetParam();
  JobConfig job = FakeJob({.records = 100, .shard_starts = {0, 30, 70}}, Yaml(param.sampler),
                          param.batch_size, param.world_size);
  const auto config = std::make_shared<const OrderConfig>(ConfigOf(job));
  const int64_t steps = StepsPerEpoch(*config);
  for (const std::string& engine : WorkingEngines()) {
    for (int workers : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(engine, " with ", workers, " workers"));
      const auto seen = RunSteps(TestRuntimeOptions(workers, engine), job, 2 * steps + 1);
      for (int64_t i = 0; i < static_cast<int64_t>(seen.size()); ++i) {
        const EpochOrder order(config, static_cast<uint64_t>(i / steps), 0);
        for (int64_t rank = 0; rank < param.world_size; ++rank) {
          EXPECT_EQ(seen[i][rank].meta.epoch, order.epoch());
          EXPECT_EQ(seen[i][rank].meta.step, i % steps);
          EXPECT_EQ(seen[i][rank].meta.next_position, order.NextPosition(i % steps));
          EXPECT_EQ(seen[i][rank].meta.last_in_epoch, i % steps == steps - 1);
          ExpectBatch(seen[i][rank], order, i % steps, rank);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, EveryOrder,
                         ::testing::Values(Case{"{shuffle: none}", 7, 1},
                                           Case{"{shuffle: full}", 8, 1},
                                           Case{"{shuffle: full}", 8, 2},
                                           Case{"{shuffle: full, last: pad}", 7, 4},
                                           Case{"{shuffle: none, last: pad}", 64, 1},
                                           Case{"{shuffle: full, last: partial}", 33, 4},
                                           Case{"{shuffle: none, last: partial}", 7, 2},
                                           Case{"{shuffle: block, block_records: 8}", 10, 2},
                                           Case{"{shuffle: full, shard: interleave}", 5, 4}));

TEST(Resume, WithAnotherWorldSizeContinuesTheSameGlobalBatches) {
  const auto sets = [](const std::vector<std::vector<SeenBatch>>& seen) {
    std::vector<std::set<int64_t>> all;
    for (const auto& step : seen) {
      all.emplace_back();
      for (const SeenBatch& batch : step) {
        for (int64_t id : batch.Int64s(kSampleId)) all.back().insert(id);
      }
    }
    return all;
  };
  const std::string yaml = Yaml("{shuffle: full}");
  const auto whole = RunSteps(TestRuntimeOptions(2), FakeJob({}, yaml, 8, 1), 12);
  const int64_t position = whole[4][0].meta.next_position;
  EXPECT_EQ(position, 40);
  const std::vector<std::set<int64_t>> expected = sets(whole);
  for (int64_t world_size : {1, 2, 4}) {
    const auto rest = RunSteps(TestRuntimeOptions(2), FakeJob({}, yaml, 8 / world_size, world_size),
                               7, 0, position);
    EXPECT_EQ(rest[0][0].meta.step, 5);
    EXPECT_EQ(sets(rest), std::vector<std::set<int64_t>>(expected.begin() + 5, expected.end()))
        << world_size;
  }
  // And with a global batch of another size the positions go on without a gap.
  const auto other = RunSteps(TestRuntimeOptions(2), FakeJob({}, yaml, 5, 2), 6, 0, position);
  for (int64_t step = 0; step < 6; ++step) {
    for (int64_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(other[step][rank].Int64s(kPosition)[0], position + step * 10 + rank * 5);
    }
  }
}

TEST(BadSample, IsReplacedByTheNextGoodPositionOnEveryRun) {
  // Alone, several in a row in the order, and at the very end, where the search wraps around.
  const JobConfig probe = FakeJob({}, Yaml("{shuffle: full, last: pad}"), 8);
  const EpochOrder order(std::make_shared<const OrderConfig>(ConfigOf(probe)), 0, 0);
  std::set<int64_t> bad;
  for (int64_t position : {5, 20, 21, 22, 23, 50, 98, 99}) bad.insert(order.RecordAt(position));
  const auto parse = [&](int64_t record) {
    return bad.count(record) > 0 ? absl::DataLossError("damaged") : absl::OkStatus();
  };
  const JobConfig job =
      FakeJob({.parse = parse}, Yaml("{shuffle: full, last: pad}", "substitute"), 8);
  for (const std::string& engine : WorkingEngines()) {
    for (int workers : {1, 2, 3}) {
      auto runtime = MakeRuntime(workers, engine);
      TestRank rank = AttachRank(*runtime, job, 0, 13);
      for (int64_t step = 0; step < 13; ++step) ExpectBatch(rank.Next(), order, step, 0, bad);
      const JobStats stats = runtime->Snapshot()[0];
      // Of the first epoch alone, and what is made ahead of the second; padding has none of them.
      EXPECT_GE(stats.bad_samples, 8u);
      EXPECT_EQ(stats.substituted, stats.bad_samples);
      EXPECT_GE(stats.samples, 13u * 8);
      runtime->Detach(rank.stream);
    }
  }
}

TEST(BadSample, FailsItsBatchInPlaceAndSeekGoesOn) {
  for (int workers : {1, 3}) {
    const auto parse = [](int64_t record) {
      return record == 21 || record == 22 ? absl::DataLossError("damaged") : absl::OkStatus();
    };
    auto runtime = MakeRuntime(workers);
    const JobConfig job = FakeJob({.parse = parse}, Yaml("{shuffle: none}"), 8);
    TestRank rank = AttachRank(*runtime, job, 0, 4);
    EXPECT_EQ(rank.Next().meta.step, 0);
    EXPECT_EQ(rank.Next().meta.step, 1);
    const auto failed = rank.slots->Next();
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->slot, -1);
    EXPECT_EQ(failed->meta.step, 2);
    EXPECT_EQ(failed->meta.next_position, 24);
    EXPECT_EQ(failed->failure.record, 21);
    EXPECT_EQ(failed->failure.path, "records.bin");
    EXPECT_EQ(failed->failure.status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(failed->failure.status.message(), "damaged");
    EXPECT_FALSE(rank.slots->Next(absl::Milliseconds(50)).has_value()) << "the stream stands still";
    EXPECT_TRUE(rank.slots->WaitUntilAllFree());
    EXPECT_EQ(runtime->Snapshot()[0].bad_samples, 1u);

    ASSERT_TRUE(runtime->Seek(rank.stream, 1, 0, 24).ok());
    const SeenBatch next = rank.Next();
    EXPECT_EQ(next.meta.serial, 1u);
    EXPECT_EQ(next.meta.step, 3);
    EXPECT_THAT(rank.slots->violations(), IsEmpty());
  }
}

TEST(BadSample, WithoutAGoodOneWithinAHundredFailsTheBatch) {
  const auto all_bad = [](int64_t) { return absl::DataLossError("damaged"); };
  for (int64_t records : {7, 300}) {
    auto runtime = MakeRuntime(2);
    const JobConfig job =
        FakeJob({.records = records, .parse = all_bad}, Yaml("{shuffle: none}", "substitute"), 4);
    TestRank rank = AttachRank(*runtime, job, 0);
    const auto failed = rank.slots->Next();
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->failure.record, 0);
    EXPECT_THAT(std::string(failed->failure.status.message()),
                HasSubstr(absl::StrCat("damaged; none of the ", std::min<int64_t>(records - 1, 100),
                                       " records after it can stand in")));
    // Clients advise `on_bad_sample: substitute` where the reason is kBadRecord.
    EXPECT_EQ(failed->failure.reason, wire::FailReason::kOther);
  }
}

TEST(BadSample, IsNotWhatAShortageOfFileHandlesIs) {
  RuntimeOptions options = TestRuntimeOptions(1);
  options.retry_for_ns = 50'000'000;
  auto made = Runtime::Create(options);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::unique_ptr<Runtime> runtime = *std::move(made);
  const JobConfig job = FakeJob({}, Yaml("{shuffle: none}", "substitute"), 4);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  TestRank rank = AttachRank(*runtime, job, 0);
  const auto failed = rank.slots->Next();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->slot, -1) << "no substitute hides what is wrong with the machine";
  EXPECT_EQ(failed->failure.status.code(), absl::StatusCode::kResourceExhausted)
      << failed->failure.status;
  EXPECT_EQ(failed->failure.record, -1);
  EXPECT_EQ(runtime->Snapshot()[0].bad_samples, 0u);
  ASSERT_TRUE(runtime->Seek(rank.stream, 1, 0, 0).ok());
  EXPECT_EQ(rank.Next().meta.serial, 1u);
}

TEST(BadSample, MayThrowWithoutHarm) {
  const auto parse = [](int64_t record) -> absl::Status {
    if (record == 3) throw std::runtime_error("thrown by a library");
    return absl::OkStatus();
  };
  auto runtime = MakeRuntime(1);
  TestRank rank = AttachRank(*runtime, FakeJob({.parse = parse}, Yaml("{shuffle: none}"), 4), 0);
  EXPECT_THAT(std::string(rank.slots->Next()->failure.status.message()),
              HasSubstr("thrown by a library"));
}

// Sleeping means: no CPU time at all. 30 ms of 300 leave room for the test itself on a loaded
// machine.
void ExpectAsleep(const Runtime& runtime) {
  const int64_t deadline = MonotonicNs() + 20'000'000'000;
  while (runtime.active_workers() > 0 && MonotonicNs() < deadline) usleep(1000);
  EXPECT_EQ(runtime.active_workers(), 0);
  const uint64_t progress = runtime.progress();
  const int64_t cpu = ProcessCpuNs();
  usleep(300'000);
  EXPECT_LT(ProcessCpuNs() - cpu, 30'000'000);
  EXPECT_EQ(runtime.progress(), progress);
}

TEST(BackPressure, WorkersSleepWithoutClientsAndWithAllSlotsFull) {
  for (const std::string& engine : WorkingEngines()) {
    auto runtime = MakeRuntime(3, engine);
    EXPECT_EQ(runtime->workers(), 3);
    ExpectAsleep(*runtime);
    TestRank rank = AttachRank(*runtime, FakeJob({}, Yaml("{shuffle: full}"), 8), 0, 2);
    while (runtime->Snapshot()[0].batches < 2) usleep(1000);  // both slots; ctest ends a hang
    ExpectAsleep(*runtime);
    const JobStats stats = runtime->Snapshot()[0];
    EXPECT_EQ(stats.batches, 2u);
    EXPECT_EQ(stats.samples, 16u);
    EXPECT_EQ(stats.bytes_read, 16u * kRecordBytes);
    EXPECT_EQ(stats.ranks[0].step, 1);
    for (int64_t step = 0; step < 30; ++step)
      EXPECT_EQ(rank.Next().meta.step, step % 12) << "and wake again";
    rank.slots->Close();
    while (auto event = rank.slots->Next(absl::Milliseconds(50))) rank.slots->Release(event->slot);
    usleep(50'000);  // what was being worked on ends
    ExpectAsleep(*runtime);
    runtime->Detach(rank.stream);
    EXPECT_THAT(rank.slots->violations(), IsEmpty());
  }
}

TEST(SlowSample, HoldsUpItsOwnBatchAndKeepsTheOrder) {
  constexpr int kBatch = 24, kSteps = 4;  // a hundred records
  // Reads that a worker has under way, at most: with fewer than 32 it takes one more ticket.
  constexpr int kHeld = 31 + kBatch;
  constexpr int kRoom = 5 * kBatch;  // four slots, and the one that is given back below
  Gate gate;
  std::atomic<int> parsed{0};
  int64_t slow = -1;
  const auto parse = [&](int64_t record) {
    if (record == slow) gate.Pass();
    // As costly as small photos: cheap records travel in long tickets.
    for (const int64_t until = ThreadCpuNs() + 300'000; ThreadCpuNs() < until;) {
    }
    parsed.fetch_add(1);
    return absl::OkStatus();
  };
  auto runtime = MakeRuntime(2);
  // In random order, so that no read brings several records.
  const JobConfig job = FakeJob({.parse = parse}, Yaml("{shuffle: full}"), kBatch);
  slow = EpochOrder(std::make_shared<const OrderConfig>(ConfigOf(job)), 0, 0).At(1, 0, 1).record;
  TestRank rank = AttachRank(*runtime, job, 0, 4);
  gate.AwaitSomebody();
  EXPECT_EQ(rank.Next().meta.step, 0);
  // The other worker goes on through the batches behind, up to the samples whose bytes the standing
  // worker holds already.
  const int64_t deadline = MonotonicNs() + 20'000'000'000;
  while (parsed.load() < kRoom - 1 - kHeld && MonotonicNs() < deadline) usleep(1000);
  EXPECT_GE(parsed.load(), kRoom - 1 - kHeld);
  EXPECT_FALSE(rank.slots->Next(absl::Milliseconds(20)).has_value());
  gate.Open();
  for (int64_t step = 1; step < 10; ++step) EXPECT_EQ(rank.Next().meta.step, step % kSteps);
}

TEST(DetachAndSeek, DoNotWaitForADecode) {
  Gate gate;
  const auto parse = [&](int64_t record) {
    if (record == 1) gate.Pass();
    return absl::OkStatus();
  };
  auto runtime = MakeRuntime(1);
  const JobConfig job = FakeJob({.parse = parse}, Yaml("{shuffle: none}"), 4);
  TestRank rank = AttachRank(*runtime, job, 0, 3);
  gate.AwaitSomebody();
  EXPECT_TRUE(runtime->Seek(rank.stream, 1, 0, 40).ok());
  runtime->Detach(rank.stream);  // both return while the only worker stands in Parse
  EXPECT_TRUE(runtime->Snapshot().empty());
  TestRank again = AttachRank(*runtime, job, 0, 3, 0, 40);  // the rank is free at once
  gate.Open();
  EXPECT_EQ(again.Next().meta.step, 10);
  EXPECT_TRUE(rank.slots->WaitUntilAllFree()) << "its last writer gave the slot up";
  EXPECT_FALSE(rank.slots->Next(absl::ZeroDuration()).has_value());
  EXPECT_THAT(rank.slots->violations(), IsEmpty());
}

TEST(DetachAndSeek, StormsLeaveOrderBytesAndSlotsRight) {
  const uint32_t seed = feedwater::testing::TestSeed();
  SCOPED_TRACE(absl::StrCat("FEEDWATER_TEST_SEED=", seed));
  std::mt19937 random(seed);
  for (const std::string& engine : WorkingEngines()) {
    auto runtime = MakeRuntime(3, engine);
    const JobConfig job = FakeJob({}, Yaml("{shuffle: full, last: partial}"), 7, 2);
    const auto config = std::make_shared<const OrderConfig>(ConfigOf(job));
    TestRank ranks[2] = {AttachRank(*runtime, job, 0, 3), AttachRank(*runtime, job, 1, 3)};
    uint32_t serials[2] = {0, 0};
    int64_t starts[2] = {0, 0};
    for (int round = 0; round < 2000; ++round) {
      const int64_t r = random() % 2;
      TestRank& rank = ranks[r];
      if (random() % 4 == 0) {
        starts[r] = random() % 101;
        ASSERT_TRUE(runtime->Seek(rank.stream, ++serials[r], random() % 3, starts[r]).ok());
      } else if (random() % 50 == 0) {
        runtime->Detach(rank.stream);
        rank.slots->Close();
        // A batch whose turn it was when the rank left may still come.
        const int64_t deadline = MonotonicNs() + 20'000'000'000;
        while (!rank.slots->WaitUntilAllFree(absl::Milliseconds(1)) && MonotonicNs() < deadline) {
          while (auto event = rank.slots->Next(absl::ZeroDuration()))
            rank.slots->Release(event->slot);
        }
        ASSERT_TRUE(rank.slots->WaitUntilAllFree(absl::ZeroDuration())) << "a slot is lost";
        ASSERT_THAT(rank.slots->violations(), IsEmpty());
        starts[r] = random() % 101;
        serials[r] = 0;
        rank = AttachRank(*runtime, job, r, 3, random() % 3, starts[r]);
      } else {
        // The first batch of the newest serial, whatever is left of older ones.
        for (;;) {
          const auto event = rank.slots->Next();
          ASSERT_TRUE(event.has_value());
          ASSERT_GE(event->slot, 0) << event->failure.status;
          const SeenBatch seen = rank.Copy(*event);
          rank.slots->Release(event->slot);
          if (seen.meta.serial != serials[r]) continue;
          const int64_t start = seen.meta.epoch > 2 || starts[r] == 100 ? 0 : starts[r];
          // Its bytes, for whichever epoch's part it belongs to: before the first change of epochs
          // or after.
          for (const int64_t from : {start, int64_t{0}}) {
            const EpochOrder order(config, seen.meta.epoch, from);
            const int64_t step = seen.meta.step - from / (7 * 2);
            if (step < 0 || step >= order.steps() ||
                order.NextPosition(step) != seen.meta.next_position ||
                order.BatchSamples(step, r) != seen.meta.samples ||
                (seen.meta.samples > 0 &&
                 order.At(step, r, 0).position != seen.Int64s(kPosition)[0])) {
              ASSERT_NE(from, 0) << "no part of the order has this batch: " << seen.Text();
              continue;
            }
            ExpectBatch(seen, order, step, r);
            break;
          }
          break;
        }
      }
    }
    for (TestRank& rank : ranks) EXPECT_THAT(rank.slots->violations(), IsEmpty());
  }
}

}  // namespace
}  // namespace feedwater::server
