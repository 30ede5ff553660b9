// Goal: an error of storage never makes a sample bad. What can pass is tried again, with the file
// opened anew, and nobody else waits for it; what does not pass ends the job with an error that
// names file and errno.
// Method: an engine whose reads fail as long as a file handle is one of those that are broken, for
// every errno and every policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>

#include "absl/strings/str_cat.h"
#include "server/base/mutex.h"
#include "server/pipeline/runtime.h"
#include "server/storage/fault.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/plain_slot_pool.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What becomes of a read: 0, or an errno.
using FilePtr = std::shared_ptr<const OpenedFile>;
std::function<int(const FilePtr& file)> fault_of;

class FaultyEngine final : public ReadEngine {
 public:
  absl::string_view name() const override { return "faulty"; }
  void Submit(ReadOp* op) override {
    bool complete = !Begin(op);
    while (!complete) {
      const Piece piece = Remaining(*op);
      const int error = fault_of(op->file);
      complete = Advance(op, error != 0 ? -error
                                        : pread(op->file->fd.get(), piece.into,
                                                static_cast<size_t>(piece.length), piece.offset));
    }
    ready_.push_back(op);
  }
  ReadOp* Collect(bool) override {
    if (ready_.empty()) return nullptr;
    ReadOp* op = ready_.front();
    ready_.pop_front();
    return op;
  }
  size_t in_flight() const override { return ready_.size(); }

 private:
  std::deque<ReadOp*> ready_;
};

const Registrar kRegistrar(
    "faulty", EngineEntry{"Fails as the test wants it.", /*preference=*/0,
                          [] { return absl::StatusOr<std::string>("a test's"); },
                          [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<ReadEngine>> {
                            return std::make_unique<FaultyEngine>();
                          }});

// The first handle is broken for ever; one that is opened later is good.
class FirstHandleIsBroken {
 public:
  explicit FirstHandleIsBroken(int error) : error_(error) {}
  int operator()(const FilePtr& file) {
    MutexLock lock(&mu_);
    if (first_ == nullptr) first_ = file;
    return first_ == file ? error_ : 0;
  }

 private:
  const int error_;
  Mutex mu_;
  FilePtr first_ ABSL_GUARDED_BY(mu_);
};

JobConfig MakeJob(const std::string& policy, FakeDataset::Options dataset = {}) {
  return TestJob(
      LoadPipeline(absl::StrCat("version: 1\ndataset: {format: image_folder, root: r, path: p}\n"
                                "sampler: {shuffle: none, last: drop}\n"
                                "outputs: [data, label, sample_id]\non_bad_sample: ",
                                policy, "\n"),
                   std::make_shared<FakeDataset>(std::move(dataset))),
      10);
}

RuntimeOptions FaultyOptions(int workers, int64_t retry_for_ns) {
  RuntimeOptions options = TestRuntimeOptions(workers, "faulty");
  options.retry_for_ns = retry_for_ns;
  options.bad_samples = BadSampleLog::Open("");
  return options;
}

constexpr int64_t kLong = 60'000'000'000;

class StorageFaults : public ::testing::TestWithParam<const char*> {};

TEST_P(StorageFaults, NoErrnoMakesASampleBad) {
  const JobConfig job = MakeJob(GetParam());
  for (int error = 1; error < 4096; ++error) {
    if (strerrorname_np(error) == nullptr) continue;
    SCOPED_TRACE(strerrorname_np(error));
    auto broken = std::make_shared<FirstHandleIsBroken>(error);
    fault_of = [broken](const FilePtr& file) { return (*broken)(file); };
    const RuntimeOptions options = FaultyOptions(1, kLong);
    auto runtime = Runtime::Create(options);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    TestRank rank = AttachRank(**runtime, job, 0, 2);
    const auto event = rank.slots->Next();
    ASSERT_TRUE(event.has_value());
    if (FaultOf(error) == Fault::kTransient) {
      ASSERT_GE(event->slot, 0) << event->failure.status;
      const auto ids = rank.Copy(*event).Int64s(2);
      for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
      EXPECT_EQ(event->meta.substituted, 0u);
    } else {
      EXPECT_EQ(event->slot, -1) << "it was hidden";
      EXPECT_EQ(event->failure.record, -1) << "nothing is wrong with the record";
      EXPECT_THAT(std::string(event->failure.status.message()),
                  AllOf(HasSubstr("records.bin"), HasSubstr(absl::StrCat("errno ", error))));
    }
    EXPECT_EQ((*runtime)->Snapshot()[0].bad_samples, 0u);
    runtime->reset();
    EXPECT_TRUE(options.bad_samples->Get().entries.empty());
  }
}

TEST_P(StorageFaults, WhatDoesNotPassInTimeEndsTheJob) {
  for (int error : {EIO, ESTALE, ETIMEDOUT, ENOTCONN}) {
    SCOPED_TRACE(strerrorname_np(error));
    std::atomic<int> now{error};
    fault_of = [&now](const FilePtr&) { return now.load(); };
    auto runtime = Runtime::Create(FaultyOptions(2, 100'000'000));
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    TestRank rank = AttachRank(**runtime, MakeJob(GetParam()), 0, 2);
    const auto event = rank.slots->Next();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->slot, -1);
    EXPECT_EQ(event->failure.record, -1);
    EXPECT_EQ(event->failure.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(event->failure.status.message()),
                AllOf(HasSubstr("records.bin"), HasSubstr(absl::StrCat("errno ", error)),
                      HasSubstr("storage.retry_for")));
    EXPECT_EQ((*runtime)->Snapshot()[0].bad_samples, 0u);
    now = 0;
    ASSERT_TRUE((*runtime)->Seek(rank.stream, 1, 0, 0).ok());
    EXPECT_EQ(rank.Next().meta.serial, 1u) << "storage is back, and so is the job";
  }
}

TEST_P(StorageFaults, AFileThatWasCutShortEndsTheJobToo) {
  fault_of = [](const FilePtr&) { return 0; };
  for (int workers : {1, 3}) {
    // It ends inside record 90, and joined reads run over its end: the batches before are whole.
    const JobConfig job = MakeJob(GetParam(), {.records = 100, .stored_records = 90});
    auto runtime = Runtime::Create(FaultyOptions(workers, kLong));
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    TestRank rank = AttachRank(**runtime, job, 0, 2);
    for (int64_t step = 0; step < 9; ++step) EXPECT_EQ(rank.Next().meta.step, step);
    const auto event = rank.slots->Next();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->slot, -1);
    EXPECT_EQ(event->failure.record, -1);
    EXPECT_EQ(event->failure.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(event->failure.status.message()),
                AllOf(HasSubstr("records.bin"), HasSubstr("truncated since it was indexed")));
    EXPECT_EQ((*runtime)->Snapshot()[0].bad_samples, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, StorageFaults,
                         ::testing::Values("fail", "substitute", "skip_with_count"),
                         [](const auto& info) { return std::string(info.param); });

TEST(StorageThatFails, HoldsUpNobodyElse) {
  // One worker, and one user's files give ESTALE for as long as anybody asks.
  const JobConfig stale = MakeJob("substitute");
  const std::string its_folder = stale.pipeline->dataset->root().path();
  fault_of = [&](const FilePtr& file) {
    return file->path.compare(0, its_folder.size(), its_folder) == 0 ? ESTALE : 0;
  };
  JobConfig good = MakeJob("fail", {.records = 1000});
  good.name = "good";
  good.owner_uid = 7;
  auto runtime = Runtime::Create(FaultyOptions(1, kLong));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  TestRank hurt = AttachRank(**runtime, stale, 0, 40);
  while ((*runtime)->Snapshot()[0].held_up == 0) usleep(1000);
  TestRank rank = AttachRank(**runtime, good, 0, 2);
  for (int64_t step = 0; step < 200; ++step) ASSERT_EQ(rank.Next().meta.step, step % 100);
  for (const JobStats& stats : (*runtime)->Snapshot())
    EXPECT_EQ(stats.held_up > 0, stats.job != "good");

  const uint64_t progress = (*runtime)->progress();
  while ((*runtime)->progress() == progress) usleep(1000);  // or the watchdog would end the daemon
  (*runtime)->Detach(hurt.stream);
  EXPECT_TRUE(hurt.slots->WaitUntilAllFree()) << "what it had is given back at once";
  for (int64_t step = 0; step < 10; ++step) rank.Next();
  EXPECT_THAT(rank.slots->violations(), ::testing::IsEmpty());
}

TEST(StorageThatFails, DoesNotHoldUpTheEnd) {
  fault_of = [](const FilePtr&) { return EIO; };
  auto runtime = Runtime::Create(FaultyOptions(2, kLong));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  TestRank rank = AttachRank(**runtime, MakeJob("substitute"), 0, 3);
  while ((*runtime)->Snapshot()[0].held_up == 0) usleep(1000);
  runtime->reset();
  EXPECT_TRUE(rank.slots->WaitUntilAllFree());
}

// Files of /proc stand for storage that may hang: they are not local either.
class ProcDataset final : public Dataset {
 public:
  ProcDataset() : root_(*(*Roots::Create({{"kernel", "/proc/sys/kernel"}}))->Find("kernel")) {
    fields_.push_back({"data", TensorSpec{DType::kUInt8, Layout::kPlain, {5}}, "bytes"});
  }
  int64_t size() const override { return 200; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return classes_; }
  const std::string& digest() const override { return name_; }
  const Root& root() const override { return *root_; }
  std::string ObjectPath(uint32_t object) const override {
    return object == 0 ? "ostype" : "missing";
  }
  void Extents(int64_t record, std::vector<Extent>* extents) const override {
    extents->push_back({record < 150 ? 0u : 1u, 0, 5});
  }
  int64_t objects() const override { return 2; }
  int64_t ObjectBytes(uint32_t) const override { return 0; }  // as /proc says
  const std::vector<int64_t>& shard_starts() const override { return starts_; }
  absl::Status Parse(int64_t, absl::Span<const absl::Span<const std::byte>> bytes,
                     Record* out) const override {
    out->fields.resize(1);
    out->fields[0].spec = fields_[0].spec;
    out->fields[0].data = const_cast<std::byte*>(bytes[0].data());
    return absl::OkStatus();
  }
  int64_t memory_bytes() const override { return 0; }
  const std::string& notes() const override { return name_; }

 private:
  const std::string name_ = "proc";
  const std::shared_ptr<const Root> root_;
  const Fd keeps_its_times_ = *root_->OpenFile("ostype", /*direct_io=*/false);
  std::vector<FieldSpec> fields_;
  const std::vector<std::string> classes_;
  const std::vector<int64_t> starts_;
};

TEST(StorageThatMayHang, IsReadByThreadsOfItsOwnWithTheSameBytes) {
  const JobConfig job =
      TestJob(LoadPipeline("version: 1\ndataset: {format: image_folder, root: r, path: p}\n"
                           "sampler: {shuffle: none}\noutputs: [data, sample_id]\n"
                           "on_bad_sample: substitute\n",
                           std::make_shared<ProcDataset>()),
              10);
  for (const std::string& engine : feedwater::testing::WorkingEngines()) {
    for (int workers : {1, 3}) {
      auto runtime = Runtime::Create(TestRuntimeOptions(workers, engine));
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      TestRank rank = AttachRank(**runtime, job, 0, 2);
      for (int64_t step = 0; step < 15; ++step) {
        const auto seen = rank.Next();
        ASSERT_EQ(seen.meta.step, step);
        for (size_t i = 0; i < 10; ++i) ASSERT_EQ(seen.outputs[0].substr(5 * i, 5), "Linux");
      }
      const auto event = rank.slots->Next();
      ASSERT_TRUE(event.has_value());
      EXPECT_EQ(event->failure.status.code(), absl::StatusCode::kNotFound);
      EXPECT_EQ(event->failure.record, -1) << "a missing file is no bad record";
      ASSERT_TRUE((*runtime)->Seek(rank.stream, 1, 0, 0).ok());
      EXPECT_EQ(rank.Next().meta.serial, 1u);
    }
  }
}

}  // namespace
}  // namespace feedwater::server
