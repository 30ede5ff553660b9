#include "tests/testing/test_runtime.h"

#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace feedwater::testing {

using server::BatchMeta;
using server::JobConfig;
using server::LoadedPipeline;
using server::Runtime;
using server::RuntimeOptions;
using server::SlotLayout;

std::string SeenBatch::Text() const {
  std::string text =
      absl::StrCat("epoch ", meta.epoch, " step ", meta.step, " next ", meta.next_position,
                   " samples ", meta.samples, " real ", meta.real_samples, " substituted ",
                   meta.substituted, " last ", meta.last_in_epoch);
  for (const std::string& output : outputs)
    absl::StrAppend(&text, "\n", absl::BytesToHexString(output));
  return text;
}

std::vector<int64_t> SeenBatch::Int64s(size_t output) const {
  std::vector<int64_t> values(outputs[output].size() / sizeof(int64_t));
  std::memcpy(values.data(), outputs[output].data(), values.size() * sizeof(int64_t));
  return values;
}

std::shared_ptr<const LoadedPipeline> LoadPipeline(const std::string& yaml,
                                                   std::shared_ptr<const server::Dataset> dataset) {
  auto spec = server::ParsePipeline(yaml, "test.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return nullptr;
  auto plan = server::Plan::Create(*spec, dataset->fields(),
                                   static_cast<int64_t>(dataset->classes().size()));
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return nullptr;
  auto pipeline = std::make_shared<LoadedPipeline>();
  pipeline->spec = *std::move(spec);
  pipeline->dataset = std::move(dataset);
  pipeline->plan = *std::move(plan);
  return pipeline;
}

JobConfig TestJob(std::shared_ptr<const LoadedPipeline> pipeline, int64_t batch_size,
                  int64_t world_size, uint64_t seed) {
  JobConfig job;
  job.name = "run1";
  job.pipeline = std::move(pipeline);
  job.batch_size = batch_size;
  job.world_size = world_size;
  job.seed = seed;
  return job;
}

TestRank AttachRank(Runtime& runtime, const JobConfig& job, int64_t rank, int slots, uint64_t epoch,
                    int64_t position) {
  TestRank attached;
  attached.layout =
      *SlotLayout::Create(job.pipeline->plan->outputs(), job.batch_size, int64_t{1} << 30);
  attached.slots = std::make_shared<PlainSlotPool>(slots, attached.layout.slot_bytes);
  auto stream = runtime.Attach(job, rank, /*pid=*/1000 + static_cast<int>(rank), epoch, position,
                               attached.layout, attached.slots);
  EXPECT_TRUE(stream.ok()) << stream.status();
  if (stream.ok()) attached.stream = *stream;
  return attached;
}

SeenBatch TestRank::Copy(const PlainSlotPool::Event& event) const {
  SeenBatch seen;
  seen.meta = event.meta;
  for (const SlotLayout::Output& output : layout.outputs) {
    const auto* data = reinterpret_cast<const char*>(slots->data(event.slot)) + output.offset;
    seen.outputs.emplace_back(data, event.meta.samples * output.sample_bytes);
  }
  return seen;
}

SeenBatch TestRank::Next() {
  const auto event = slots->Next();
  EXPECT_TRUE(event.has_value()) << "no batch came";
  if (!event.has_value()) return {};
  EXPECT_GE(event->slot, 0) << event->failure.status;
  if (event->slot < 0) return {};
  SeenBatch seen = Copy(*event);
  slots->Release(event->slot);
  return seen;
}

RuntimeOptions TestRuntimeOptions(int workers, const std::string& engine) {
  RuntimeOptions options;
  options.cpus.assign(workers, 0);
  options.pin = false;
  options.engine.name = engine;
  return options;
}

std::vector<std::string> WorkingEngines() {
  std::vector<std::string> engines = {"pread"};
  if (server::ChooseEngine("io_uring").ok()) engines.push_back("io_uring");
  return engines;
}

std::vector<std::vector<SeenBatch>> RunSteps(const RuntimeOptions& options, const JobConfig& job,
                                             int64_t steps, uint64_t epoch, int64_t position) {
  auto runtime = Runtime::Create(options);
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  if (!runtime.ok()) return {};
  std::vector<TestRank> ranks;
  for (int64_t rank = 0; rank < job.world_size; ++rank) {
    ranks.push_back(AttachRank(**runtime, job, rank, 3, epoch, position));
  }
  std::vector<std::vector<SeenBatch>> seen(steps);
  for (auto& step : seen) {
    for (TestRank& rank : ranks) step.push_back(rank.Next());
  }
  for (TestRank& rank : ranks) {
    (*runtime)->Detach(rank.stream);
    for (const std::string& violation : rank.slots->violations()) ADD_FAILURE() << violation;
  }
  return seen;
}

}  // namespace feedwater::testing
