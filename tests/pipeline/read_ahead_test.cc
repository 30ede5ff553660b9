// Reading a job's windows ahead, and joining neighbours over gaps, on storage of a kind that a test
// says: what is asked for, in which pieces, and that the bytes are the same everywhere.
#include "server/pipeline/read_ahead.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/pipeline/dataset_order.h"
#include "server/pipeline/record_reader.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::RunSteps;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRuntimeOptions;

constexpr int64_t kRecords = 4000, kRecordBytes = 4096, kWindow = 512;

std::string Yaml(int64_t window = kWindow) {
  return absl::StrCat(
      "version: 1\ndataset: {format: image_folder, root: r, path: p}\nsampler: {shuffle: block, "
      "block_records: ",
      window, "}\noutputs: [data, sample_id]\n");
}

std::shared_ptr<const LoadedPipeline> Pipeline(const std::string& yaml = Yaml()) {
  FakeDataset::Options options;
  options.records = kRecords;
  options.record_bytes = kRecordBytes;
  options.shard_starts = {0, 1000, 1300, 3000};
  return LoadPipeline(yaml, std::make_shared<FakeDataset>(options));
}

struct Piece {
  int64_t offset, length;
};

class Windows : public ::testing::Test {
 protected:
  ~Windows() override { calls_->Stop(); }

  std::shared_ptr<ReadAhead> Make(StorageKind kind = StorageKind::kRotational,
                                  int64_t most_bytes = ReadAhead::kMostBytes,
                                  const std::function<void(int64_t, int64_t)>& also = nullptr) {
    ReadAhead::Parts parts;
    parts.pipeline = pipeline_;
    parts.files =
        JobFiles::Create(pipeline_->dataset, std::make_shared<FileCache>(4, false), nullptr);
    parts.calls = calls_;
    parts.counts = counts_;
    parts.kind = kind;
    parts.most_bytes = most_bytes;
    parts.advise = [this, also](const OpenedFile&, int64_t offset, int64_t length) {
      if (also != nullptr) also(offset, length);
      MutexLock lock(&mu_);
      pieces_.push_back({offset, length});
    };
    OrderConfig config = *MakeOrderConfig(pipeline_->spec.sampler, *pipeline_->dataset, 64, 1);
    config_ = std::make_shared<const OrderConfig>(config);
    order_ = std::make_shared<const EpochOrder>(config_, 0, 0);
    return ReadAhead::Create(std::move(parts), config);
  }
  std::vector<Piece> pieces() {
    MutexLock lock(&mu_);
    return pieces_;
  }
  int64_t bytes() {
    int64_t sum = 0;
    for (const Piece& piece : pieces()) sum += piece.length;
    return sum;
  }
  // Whether the piece's bytes hold the record.
  bool IsAsked(int64_t record) {
    const int64_t at = record * kRecordBytes;
    std::vector<bool> covered(kRecordBytes, false);
    for (const Piece& piece : pieces()) {
      const int64_t from = std::max(at, piece.offset);
      const int64_t to = std::min(at + kRecordBytes, piece.offset + piece.length);
      for (int64_t i = from; i < to; ++i) covered[static_cast<size_t>(i - at)] = true;
    }
    return std::find(covered.begin(), covered.end(), false) == covered.end();
  }

  const std::shared_ptr<const LoadedPipeline> pipeline_ = Pipeline();
  std::shared_ptr<StorageCalls> calls_ = std::make_shared<StorageCalls>();
  const std::shared_ptr<ReadCounts> counts_ = std::make_shared<ReadCounts>();
  std::shared_ptr<const OrderConfig> config_;
  std::shared_ptr<const EpochOrder> order_;
  Mutex mu_;
  std::vector<Piece> pieces_ ABSL_GUARDED_BY(mu_);
};

TEST_F(Windows, AreReadOneAheadInLargePieces) {
  const auto ahead = Make();
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1)) << "nothing has been read yet";
  ASSERT_TRUE(testing::Eventually([&] { return ahead->Reach(order_, 0, 63, 1, 1); }));
  for (int64_t i = 0; i < kWindow; ++i) EXPECT_TRUE(IsAsked(order_->RecordAt(i))) << i;
  EXPECT_LE(bytes(), (kWindow + 64) * kRecordBytes) << "no more than a window ahead";
  // A run of a shard is one piece but where a stripe ends.
  EXPECT_LE(pieces().size(), 8u);
  for (const Piece& piece : pieces()) {
    EXPECT_EQ(piece.offset / ReadAhead::kPieceBytes,
              (piece.offset + piece.length - 1) / ReadAhead::kPieceBytes);
  }
}

TEST_F(Windows, OfAnEpochAreAllReadOnce) {
  const auto ahead = Make();
  for (int64_t at = 0; at < kRecords; at += 64) {
    const int64_t last = std::min(at + 63, kRecords - 1);
    ASSERT_TRUE(testing::Eventually([&] { return ahead->Reach(order_, at, last, 1, 1); })) << at;
  }
  EXPECT_EQ(bytes(), kRecords * kRecordBytes);
  const Counters counters = counts_->counters();
  EXPECT_EQ(counters.at("storage_ahead_bytes"), kRecords * kRecordBytes);
  EXPECT_EQ(counters.at("storage_ahead_reads"), pieces().size());
  EXPECT_LE(counters.at("storage_ahead_seeks"), 4u + kRecords / kWindow);
}

TEST_F(Windows, BeginWhereACursorIs) {
  const auto ahead = Make();
  const int64_t at = 5 * kWindow + 100;
  ASSERT_TRUE(testing::Eventually([&] { return ahead->Reach(order_, at, at + 63, 1, 1); }));
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1)) << "of an earlier position nothing is known";
  EXPECT_LE(bytes(), (2 * kWindow + 64) * kRecordBytes);
}

TEST_F(Windows, OfAnEarlierEpochAreReadOnceAllRanksHaveGoneBack) {
  const auto ahead = Make();
  const auto later = std::make_shared<const EpochOrder>(config_, 5, 0);
  ASSERT_TRUE(testing::Eventually([&] { return ahead->Reach(later, 0, 63, 1, 1); }));
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1));
  EXPECT_TRUE(ahead->Reach(later, 0, 63, 1, 1)) << "a rank that is behind changes nothing";
  EXPECT_TRUE(testing::Eventually([&] { return ahead->Reach(order_, 0, 63, 1, 1); }));
}

TEST_F(Windows, AreLeftAloneWhereTheyAreUsedElsewhere) {
  const auto ahead = Make();
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, /*attached=*/1, /*world=*/8));
  EXPECT_TRUE(testing::Eventually([&] { return ahead->Reach(order_, 0, 63, 4, 8); }));
}

TEST_F(Windows, AreNotReadAheadOnDrives) {
  EXPECT_EQ(Make(StorageKind::kFlash), nullptr);
  EXPECT_EQ(Make(StorageKind::kMemory), nullptr);
  EXPECT_NE(Make(StorageKind::kNetwork), nullptr);
}

TEST_F(Windows, ThatAreTooLargeForThePageCacheAreNotReadAhead) {
  const auto ahead = Make(StorageKind::kRotational, 2 * kWindow * kRecordBytes - 1);
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1));
  ASSERT_TRUE(testing::Eventually([&] {
    const StorageCalls::Counts counts = calls_->counts();
    return counts.running + counts.queued == 0;
  }));
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1));
  EXPECT_EQ(bytes(), 0);
}

TEST_F(Windows, AreReadByTheCallerWhereNoThreadCanBeStarted) {
  const auto read = [&] {
    alarm(20);
    const rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(2);
    if (getuid() == 0 && setuid(65534) != 0) _exit(2);  // root may start any number
    const auto ahead = Make();
    ahead->Reach(order_, 0, 63, 1, 1);
    _exit(ahead->Reach(order_, 0, 63, 1, 1) ? 0 : 1);
  };
  EXPECT_EXIT(read(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Windows, ForWhichThereIsNoMemoryAreLeftAlone) {
  const auto ahead = Make(StorageKind::kRotational, ReadAhead::kMostBytes,
                          [](int64_t, int64_t) { throw std::bad_alloc(); });
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1));
  EXPECT_TRUE(testing::Eventually([&] { return ahead->is_off(); }));
}

// A call into storage that hangs until the test lets it go.
class Hangs final : public StorageCall {
 public:
  explicit Hangs(std::shared_future<void> until) : until_(std::move(until)) {}
  void Run() override { until_.wait(); }

 private:
  const std::shared_future<void> until_;
};

TEST_F(Windows, OfAnEndedJobAreLetGoWhileStorageHangs) {
  calls_ = std::make_shared<StorageCalls>(StorageCalls::Options{.threads_per_user = 1});
  std::promise<void> answers;
  calls_->Start(0, std::make_shared<Hangs>(answers.get_future().share()));
  ASSERT_TRUE(testing::Eventually([&] { return calls_->counts().running == 1; }));
  auto ahead = Make();
  const std::weak_ptr<ReadAhead> left = ahead;
  EXPECT_FALSE(ahead->Reach(order_, 0, 63, 1, 1));
  EXPECT_EQ(calls_->counts().queued, 1u);
  ahead->End();
  ahead = nullptr;
  EXPECT_EQ(calls_->counts().queued, 0u);
  EXPECT_TRUE(left.expired());
  answers.set_value();
}

TEST(ReadAheadInAJob, ChangesNoByteAndIsCounted) {
  const JobConfig job = TestJob(Pipeline(), 64);
  const int64_t steps = kRecords / 64;
  RuntimeOptions options = TestRuntimeOptions(2);
  options.storage_kind = StorageKind::kFlash;
  const auto plain = RunSteps(options, job, steps);
  options.storage_kind = StorageKind::kRotational;
  EXPECT_EQ(RunSteps(options, job, steps), plain);

  auto runtime = *Runtime::Create(options);
  auto rank = testing::AttachRank(*runtime, job, 0);
  for (int64_t step = 0; step < steps; ++step) rank.Next();
  const Counters counters = runtime->counters();
  EXPECT_GT(counters.at("storage_ahead_bytes"), 0u);
  EXPECT_GT(counters.at("storage_reads") + counters.at("storage_reads_found_ahead"), 0u);
  runtime->Detach(rank.stream);
}

// Records of which every second one is wanted, so that there are gaps between them.
class Gaps : public ::testing::TestWithParam<StorageKind> {};

TEST_P(Gaps, AreReadWhereThatCostsLessThanAnotherRead) {
  FakeDataset::Options options;
  options.records = 64;
  options.record_bytes = 16 << 10;
  const FakeDataset dataset(options);
  const auto counts = std::make_shared<ReadCounts>();
  RecordReader reader(*CreateEngine("pread", {32}), 32, std::make_shared<FileCache>(4, false),
                      nullptr, 0, nullptr, GetParam(), counts);
  std::vector<RecordBytes> records(8);
  for (int64_t i = 0; i < 8; ++i) reader.Start(dataset, 2 * i, &records[static_cast<size_t>(i)]);
  for (int i = 0; i < 8; ++i) {
    const RecordBytes* const bytes = reader.Collect();
    ASSERT_NE(bytes, nullptr);
    ASSERT_TRUE(bytes->status().ok()) << bytes->status();
    ASSERT_EQ(bytes->extents()[0].size(), static_cast<size_t>(options.record_bytes));
    for (int64_t at = 0; at < options.record_bytes; ++at) {
      ASSERT_EQ(static_cast<uint8_t>(bytes->extents()[0][static_cast<size_t>(at)]),
                FakeDataset::ByteOf(bytes->record(), at));
    }
  }
  for (RecordBytes& bytes : records) reader.Release(&bytes);
  const Counters counters = counts->counters();
  if (HabitsOf(GetParam()).join_gap_bytes >= 16 << 10) {
    EXPECT_EQ(counters.at("storage_reads"), 1u);
    EXPECT_EQ(counters.at("storage_reads_joined"), 7u);
    EXPECT_EQ(counters.at("storage_read_bytes"), 15u * 16 << 10);
  } else {
    EXPECT_EQ(counters.at("storage_reads"), 8u);
    EXPECT_EQ(counters.at("storage_seeks"), 8u);
    EXPECT_EQ(counters.at("storage_read_bytes"), 8u * 16 << 10);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKind, Gaps,
                         ::testing::Values(StorageKind::kUnknown, StorageKind::kMemory,
                                           StorageKind::kFlash, StorageKind::kRotational,
                                           StorageKind::kNetwork),
                         [](const auto& info) { return std::string(StorageKindName(info.param)); });

// Small records far from each other: copying what lies between them would cost more.
TEST(SmallGaps, AreNoMoreThanAFewTimesWhatIsWanted) {
  FakeDataset::Options options;
  options.records = 4000;
  options.record_bytes = 512;
  const FakeDataset dataset(options);
  const auto counts = std::make_shared<ReadCounts>();
  RecordReader reader(*CreateEngine("pread", {32}), 32, std::make_shared<FileCache>(4, false),
                      nullptr, 0, nullptr, StorageKind::kRotational, counts);
  std::vector<RecordBytes> records(2);
  reader.Start(dataset, 0, &records[0]);
  reader.Start(dataset, 500, &records[1]);
  for (int i = 0; i < 2; ++i) ASSERT_NE(reader.Collect(), nullptr);
  for (RecordBytes& bytes : records) reader.Release(&bytes);
  EXPECT_EQ(counts->counters().at("storage_reads"), 2u);
}

}  // namespace
}  // namespace feedwater::server
