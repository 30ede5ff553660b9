// Runs a pipeline on a Runtime of its own and keeps what each rank received, for tests that compare
// bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/pipeline/runtime.h"
#include "tests/testing/plain_slot_pool.h"

namespace feedwater::testing {

// A batch as the trainer saw it.
struct SeenBatch {
  server::BatchMeta meta;
  std::vector<std::string> outputs;  // the filled part of each
  // Everything that must not differ between two runs, readable.
  std::string Text() const;
  std::vector<int64_t> Int64s(size_t output) const;
  friend bool operator==(const SeenBatch& a, const SeenBatch& b) { return a.Text() == b.Text(); }
};

// The pipeline of `yaml` with this dataset in place of the one that its `dataset:` names.
std::shared_ptr<const server::LoadedPipeline> LoadPipeline(
    const std::string& yaml, std::shared_ptr<const server::Dataset> dataset);

// One attached rank with its slots.
struct TestRank {
  std::shared_ptr<server::Stream> stream;
  std::shared_ptr<PlainSlotPool> slots;
  server::SlotLayout layout;

  // Waits for the next batch, copies it and releases the slot. A failure fails the test.
  SeenBatch Next();
  SeenBatch Copy(const PlainSlotPool::Event& event) const;
};

server::JobConfig TestJob(std::shared_ptr<const server::LoadedPipeline> pipeline,
                          int64_t batch_size, int64_t world_size = 1, uint64_t seed = 42);
TestRank AttachRank(server::Runtime& runtime, const server::JobConfig& job, int64_t rank,
                    int slots = 3, uint64_t epoch = 0, int64_t position = 0);

// Unpinned workers. `engine`: a registered name.
server::RuntimeOptions TestRuntimeOptions(int workers, const std::string& engine = "pread");
std::vector<std::string> WorkingEngines();  // pread, and io_uring where it works
// The first `steps` batches of all ranks, [step][rank].
std::vector<std::vector<SeenBatch>> RunSteps(const server::RuntimeOptions& options,
                                             const server::JobConfig& job, int64_t steps,
                                             uint64_t epoch = 0, int64_t position = 0);

}  // namespace feedwater::testing
