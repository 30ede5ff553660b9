// A batch in this process's own memory, for commands that make samples without a daemon's slots.
// Belongs to one thread; the plan outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/batch/slot_layout.h"
#include "server/decoder/sample_maker.h"
#include "server/graph/plan.h"

namespace feedwater::cli {

class SampleBatch {
 public:
  // Room for `samples`, which `maker` makes. InvalidArgument or ResourceExhausted when that is too
  // much.
  static absl::StatusOr<SampleBatch> Create(const server::Plan& plan, int64_t samples,
                                            std::unique_ptr<server::SampleMaker> maker);

  // As SampleMaker::Run and Plan::FinishBatch; what a library throws becomes an error, too.
  absl::Status Run(const server::SampleInput& input, int64_t k);
  absl::Status RunFromPrefix(const server::SampleInput& input, int64_t k);
  // As Plan::RunTimed, on the calling thread whatever the maker is.
  absl::Status RunTimed(const server::SampleInput& input, int64_t k, absl::Span<int64_t> pass_ns);
  // As SampleMaker::RunKeeping, at place 0.
  absl::Status RunKeeping(const server::SampleInput& input, int64_t max_field_bytes,
                          absl::FunctionRef<void(const server::Record&)> keep);
  absl::Status Finish(int64_t samples, uint64_t global_batch, server::PhiloxKey key);

  // Output i of the sample at place k. REQUIRES of a ragged one: Finish.
  server::Tensor Output(size_t i, int64_t k) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  static absl::StatusOr<Memory> Allocate(int64_t bytes);

  const server::Plan* plan_ = nullptr;
  server::SlotLayout layout_;
  Memory slot_, staging_;
  server::BatchMemory memory_;
  std::unique_ptr<server::SampleMaker> maker_;
  std::unique_ptr<server::SampleWorkspace> workspace_;  // of batch ops and RunTimed
};

}  // namespace feedwater::cli
