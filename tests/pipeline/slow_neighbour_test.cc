// Goal: what a worker has taken for one user does not wait for another one's sample that may take
// long, whichever is read first, nor for all that it has taken for the other one.
// Method: one worker, and an engine that keeps the reads of one file back until the other's are
// there; CPU time of samples that two users take as fast as they can.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/base/clock.h"
#include "server/pipeline/runtime.h"
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

constexpr int kBatch = 2;        // as many as a worker with quick storage reads at a time
constexpr int kKnownAfter = 10;  // batches: what the first few cost says little

// Set and read by the worker alone.
const OpenedFile* kept_back = nullptr;  // whose reads stay away
int looks_until_let_go = -1;            // counts once another file's read was given out

class PartialEngine final : public ReadEngine {
 public:
  absl::string_view name() const override { return "partial"; }
  void Submit(ReadOp* op) override {
    bool complete = !Begin(op);
    while (!complete) {
      const Piece piece = Remaining(*op);
      complete = Advance(op, pread(op->file->fd.get(), piece.into,
                                   static_cast<size_t>(piece.length), piece.offset));
    }
    ready_.push_back(op);
  }
  ReadOp* Collect(bool) override {
    if (looks_until_let_go > 0 && --looks_until_let_go == 0) kept_back = nullptr;
    for (auto it = ready_.begin(); it != ready_.end(); ++it) {
      ReadOp* const op = *it;
      if (kept_back != nullptr && op->file.get() == kept_back) continue;
      if (kept_back != nullptr && looks_until_let_go < 0) looks_until_let_go = 100;
      ready_.erase(it);
      last_ = op->file.get();
      return op;
    }
    return nullptr;
  }
  size_t in_flight() const override { return ready_.size(); }

  static const OpenedFile* last_;  // whose read was given out

 private:
  std::list<ReadOp*> ready_;
};
const OpenedFile* PartialEngine::last_ = nullptr;

const Registrar kRegistrar(
    "partial", EngineEntry{"Keeps reads of one file back.", /*preference=*/0,
                           [] { return absl::StatusOr<std::string>("a test's"); },
                           [](const EngineOptions&) -> absl::StatusOr<std::unique_ptr<ReadEngine>> {
                             return std::make_unique<PartialEngine>();
                           }});

JobConfig MakeJob(uint32_t uid, std::function<absl::Status(int64_t)> parse,
                  int64_t batch = kBatch) {
  FakeDataset::Options dataset;
  dataset.parse = std::move(parse);
  JobConfig job =
      TestJob(LoadPipeline("version: 1\ndataset: {format: image_folder, root: r, path: p}\n"
                           "sampler: {shuffle: full}\noutputs: [data, label]\n",
                           std::make_shared<FakeDataset>(std::move(dataset))),
              batch);
  job.owner_uid = uid;
  return job;
}

TEST(SlowNeighbour, ASampleThatMayTakeLongComesAfterThoseInHand) {
  absl::Notification next_batch, both_there, all_done;
  std::vector<std::string> order;  // of the worker alone, until it is joined
  const JobConfig quick = MakeJob(1, [&](int64_t) {
    order.push_back("quick");
    if (order.size() == kKnownAfter * kBatch + 1) {  // known to be quick; one more is in hand
      kept_back = PartialEngine::last_;
      next_batch.Notify();
      both_there.WaitForNotification();
    }
    return absl::OkStatus();
  });
  const JobConfig fresh = MakeJob(2, [&](int64_t) {
    order.push_back("new");
    if (!all_done.HasBeenNotified()) all_done.Notify();
    return absl::OkStatus();
  });
  auto runtime = Runtime::Create(TestRuntimeOptions(1, "partial"));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  TestRank first = AttachRank(**runtime, quick, 0, /*slots=*/1);
  for (int i = 0; i < kKnownAfter; ++i) first.Next();
  next_batch.WaitForNotification();
  TestRank other = AttachRank(**runtime, fresh, 0, 1);
  both_there.Notify();
  ASSERT_TRUE(all_done.WaitForNotificationWithTimeout(absl::Seconds(60)));
  first.Next();
  runtime->reset();  // joins the worker, whose `order` is
  std::vector<std::string> expected((kKnownAfter + 1) * kBatch, "quick");
  expected.emplace_back("new");
  ASSERT_GE(order.size(), expected.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), order.begin()))
      << "position of the new one: "
      << std::find(order.begin(), order.end(), "new") - order.begin();
}

TEST(SlowNeighbour, AUserWithALongRowDoesNotHoldUpOneWithAShortRow) {
  std::atomic<int64_t> longs{0}, shorts{0};
  const auto work = [](std::atomic<int64_t>& samples) {
    return [&samples](int64_t) {
      for (const int64_t until = ThreadCpuNs() + 1'000'000; ThreadCpuNs() < until;) {
      }
      ++samples;
      return absl::OkStatus();
    };
  };
  auto runtime = Runtime::Create(TestRuntimeOptions(1, "pread"));
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  // 400 samples on their way, and 4.
  TestRank with_long = AttachRank(**runtime, MakeJob(1, work(longs), 50), 0, 8);
  TestRank with_short = AttachRank(**runtime, MakeJob(2, work(shorts), 2), 0, 2);
  std::atomic<bool> stop{false};
  const auto take = [&](TestRank& rank) {
    return std::thread([&] {
      while (!stop)
        if (auto event = rank.slots->Next(absl::Milliseconds(10))) rank.slots->Release(event->slot);
    });
  };
  std::thread one = take(with_long), other = take(with_short);
  const int64_t deadline = MonotonicNs() + 60'000'000'000;
  while (longs + shorts < 2000 && MonotonicNs() < deadline) usleep(1000);
  stop = true;
  one.join();
  other.join();
  // Half, but for what it takes to hand out a batch; in one row it would be a hundredth.
  EXPECT_GE(shorts * 5, longs) << shorts << " and " << longs;
  runtime->reset();
}

}  // namespace
}  // namespace feedwater::server
