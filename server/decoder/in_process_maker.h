// Makes samples on the calling thread.
#pragma once

#include <atomic>

#include "server/base/work_clock.h"
#include "server/decoder/sample_maker.h"
#include "server/decoder/timed_caller.h"

namespace feedwater::server {

class InProcessMaker final : public SampleMaker {
 public:
  // `plan`, `indexes` and `gone` (both may be null) are what the next calls use, and must live as
  // long. Once `gone` is true, samples may end early with Cancelled.
  // `caller`: of the user whose plan it is; may be null.
  void Use(const Plan* plan, SeekIndexes* indexes, const std::atomic<bool>* gone = nullptr,
           OpCaller* caller = nullptr);

  absl::Status Run(const SampleInput& input, int64_t k, const BatchMemory& memory) override;
  absl::Status RunFromPrefix(const SampleInput& input, int64_t k,
                             const BatchMemory& memory) override;
  absl::Status RunKeeping(const SampleInput& input, int64_t k, const BatchMemory& memory,
                          int64_t max_field_bytes,
                          absl::FunctionRef<void(const Record&)> keep) override;
  absl::Status Pack(absl::Span<const std::byte> encoded, const ImageLimits& limits,
                    std::vector<std::byte>* document) override;
  absl::Status MakeSeekIndexes(const Record& record) override;
  MakingCost TakeCost() override;

  SampleWorkspace& workspace() { return workspace_; }
  // For work in the workspace outside this object: as Use.
  void UseCaller(OpCaller* caller, const std::atomic<bool>* gone) {
    caller_.Use(caller);
    workspace_.UseCaller(caller_.get(), gone);
  }
  void UseTurn(CallTurn* turn) { caller_.UseTurn(turn); }

 private:
  void Begin() { workspace_.clock().Begin(plan_->limits().max_sample_ms, gone_); }

  const Plan* plan_ = nullptr;
  const std::atomic<bool>* gone_ = nullptr;
  TimedCaller caller_;
  SampleWorkspace workspace_;
  Record kept_;  // scratch
  DecodeCounts counted_;
};

}  // namespace feedwater::server
