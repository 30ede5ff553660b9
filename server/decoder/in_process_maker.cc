#include "server/decoder/in_process_maker.h"

namespace feedwater::server {

void InProcessMaker::Use(const Plan* plan, SeekIndexes* indexes, const std::atomic<bool>* gone,
                         OpCaller* caller) {
  plan_ = plan;
  gone_ = gone;
  workspace_.images().UseSeekIndexes(indexes);
  UseCaller(caller, gone);
}

absl::Status InProcessMaker::Run(const SampleInput& input, int64_t k, const BatchMemory& memory) {
  Begin();
  return plan_->Run(input, k, memory, workspace_);
}

absl::Status InProcessMaker::RunFromPrefix(const SampleInput& input, int64_t k,
                                           const BatchMemory& memory) {
  Begin();
  return plan_->RunFromPrefix(input, k, memory, workspace_);
}

// Each way has the time of a sample: whether it is good does not depend on what a cache wants.
absl::Status InProcessMaker::RunKeeping(const SampleInput& input, int64_t k,
                                        const BatchMemory& memory, int64_t max_field_bytes,
                                        absl::FunctionRef<void(const Record&)> keep) {
  Begin();
  if (!plan_->RunPrefix(input, max_field_bytes, workspace_, &kept_).ok())
    return Run(input, k, memory);
  keep(kept_);
  SampleInput rest = input;
  rest.record = &kept_;
  return RunFromPrefix(rest, k, memory);
}

absl::Status InProcessMaker::Pack(absl::Span<const std::byte> encoded, const ImageLimits& limits,
                                  std::vector<std::byte>* document) {
  const auto packed = PackCoefficients(encoded, limits, workspace_.images());
  document->assign(packed.begin(), packed.end());
  return absl::OkStatus();
}

absl::Status InProcessMaker::MakeSeekIndexes(const Record& record) {
  for (const Tensor& field : record.fields) {
    if (field.spec.layout != Layout::kEncoded) continue;
    MakeSeekIndex({field.data, field.bytes()}, plan_->limits(), workspace_.images());
  }
  return absl::OkStatus();
}

MakingCost InProcessMaker::TakeCost() {
  MakingCost cost;
  cost.held_ns = caller_.TakeHeldNs();
  const DecodeCounts& now = workspace_.images().counts();
  cost.decoded.AddSince(counted_, now);
  counted_ = now;
  return cost;
}

}  // namespace feedwater::server
