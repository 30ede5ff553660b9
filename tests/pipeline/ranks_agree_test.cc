// Ranks of one job have one plan and one layout of their slots, or the second is refused: samples
// are written by the plan of the first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/mutex.h"
#include "server/source/given_records.h"
#include "tests/testing/fake_dataset.h"
#include "tests/testing/test_runtime.h"

namespace feedwater::server {
namespace {

using ::feedwater::testing::AttachRank;
using ::feedwater::testing::FakeDataset;
using ::feedwater::testing::LoadPipeline;
using ::feedwater::testing::TestJob;
using ::feedwater::testing::TestRank;
using ::feedwater::testing::TestRuntimeOptions;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 10;

// Pipelines with one digest whose plans write other bytes: what a reload or a chosen collision
// could bring.
TEST(RanksOfAJob, ThatHaveOtherOutputsAreRefused) {
  auto runtime = *Runtime::Create(TestRuntimeOptions(1));
  auto dataset = std::make_shared<FakeDataset>(FakeDataset::Options{});
  const auto load = [&](const std::string& outputs) {
    auto pipeline = std::make_shared<LoadedPipeline>(*LoadPipeline(
        "version: 1\ndataset: {format: image_folder, root: r, path: p}\noutputs: " + outputs + "\n",
        dataset));
    pipeline->spec.digest = "0123456789abcdef0123456789abcdef";
    return pipeline;
  };
  const TestRank first = AttachRank(*runtime, TestJob(load("[data, label]"), kBatch, 3), 0);
  const auto attach = [&](const std::shared_ptr<LoadedPipeline>& pipeline) {
    const JobConfig job = TestJob(pipeline, kBatch, 3);
    const auto layout = *SlotLayout::Create(pipeline->plan->outputs(), kBatch, 1 << 20);
    auto slots = std::make_shared<::feedwater::testing::PlainSlotPool>(2, layout.slot_bytes);
    return runtime->Attach(job, 1, 1, 0, 0, layout, slots).status();
  };
  for (const char* outputs : {"[label, data]", "[data]", "[data, label, sample_id]"}) {
    const absl::Status status = attach(load(outputs));
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << outputs << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("runs with other outputs"));
  }
  EXPECT_TRUE(attach(load("[data, label]")).ok()) << "a pipeline that was loaded again";

  // Slots that are not laid out for the plan that writes them.
  const JobConfig job = TestJob(load("[data, label]"), kBatch, 3);
  auto layout = *SlotLayout::Create(job.pipeline->plan->outputs(), kBatch, 1 << 20);
  layout.outputs[1].offset += 64;
  auto slots = std::make_shared<::feedwater::testing::PlainSlotPool>(2, layout.slot_bytes);
  const absl::Status status = runtime->Attach(job, 2, 1, 0, 0, layout, slots).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

// A program that makes no record.
class IdleGiver final : public RecordGiver {
 public:
  void Ask(int64_t, const ProvidedSeed&, std::weak_ptr<RecordTaker> taker) override {
    MutexLock lock(&mu_);
    asked_.push_back(std::move(taker));
  }
  void Flush() override {
    std::vector<std::weak_ptr<RecordTaker>> asked;
    {
      MutexLock lock(&mu_);
      asked.swap(asked_);
    }
    for (const auto& one : asked) {
      if (const auto taker = one.lock()) taker->Given(absl::DataLossError("idle"), {}, nullptr);
    }
  }
  absl::Status LookAgain() const override { return absl::OkStatus(); }
  std::string identity() const override { return "of no version"; }

 private:
  Mutex mu_;
  std::vector<std::weak_ptr<RecordTaker>> asked_ ABSL_GUARDED_BY(mu_);
};

// All of whose digests are the same: who gives the records is in none of them.
TEST(RanksOfAJob, ThatReadAnotherSourceOfAUsersOwnAreRefused) {
  auto runtime = *Runtime::Create(TestRuntimeOptions(1));
  const auto dataset = [](const std::string& name, const std::shared_ptr<RecordGiver>& giver) {
    OfferedSource source;
    source.name = name;
    source.records = 100;
    source.fields = {{"data", {DType::kUInt8, Layout::kPlain, {4}}, ""}};
    return *GivenDataset({source, giver}, nullptr);
  };
  const auto giver = std::make_shared<IdleGiver>();
  const auto job = [](std::shared_ptr<const Dataset> of) {
    return TestJob(LoadPipeline("version: 1\ndataset: {format: python, name: x}\noutputs: [data]\n",
                                std::move(of)),
                   kBatch, 3);
  };
  const TestRank first = AttachRank(*runtime, job(dataset("train", giver)), 0);
  const auto attach = [&](const JobConfig& config) {
    const auto layout = *SlotLayout::Create(config.pipeline->plan->outputs(), kBatch, 1 << 20);
    auto slots = std::make_shared<::feedwater::testing::PlainSlotPool>(2, layout.slot_bytes);
    return runtime->Attach(config, 1, 1, 0, 0, layout, slots).status();
  };
  for (const char* name : {"val", "train"}) {  // the latter was served anew, by another program
    const absl::Status status = attach(job(dataset(name, std::make_shared<IdleGiver>())));
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("runs with source 'train' (of no version), this rank says '",
                                       name, "' (of no version)")));
  }
  EXPECT_TRUE(attach(job(dataset("train", giver))).ok()) << "a pipeline that was loaded again";
}

// What an op of the user's own does is in no digest, either.
TEST(RanksOfAJob, WhoseOwnOpsDoSomethingElseAreRefused) {
  auto runtime = *Runtime::Create(TestRuntimeOptions(1));
  const auto giver = std::make_shared<IdleGiver>();
  const auto job = [&](const std::string& identity) {
    OfferedSource source;
    source.records = 100;
    source.fields = {{"data", {DType::kUInt8, Layout::kPlain, {4}}, ""}};
    auto pipeline = std::make_shared<LoadedPipeline>(
        *LoadPipeline("version: 1\ndataset: {format: python, name: x}\noutputs: [data]\n",
                      *GivenDataset({source, giver}, nullptr)));
    pipeline->own_identity = identity;
    return TestJob(std::move(pipeline), kBatch, 3);
  };
  const TestRank first = AttachRank(*runtime, job("op aug: pickle a"), 0);
  const auto attach = [&](const JobConfig& config) {
    const auto layout = *SlotLayout::Create(config.pipeline->plan->outputs(), kBatch, 1 << 20);
    auto slots = std::make_shared<::feedwater::testing::PlainSlotPool>(2, layout.slot_bytes);
    return runtime->Attach(config, 1, 1, 0, 0, layout, slots).status();
  };
  const absl::Status status = attach(job("op aug: pickle b"));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("runs with own code op aug: pickle a, this rank says op aug: pickle b"));
  EXPECT_TRUE(attach(job("op aug: pickle a")).ok());
}

}  // namespace
}  // namespace feedwater::server
