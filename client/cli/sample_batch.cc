#include "client/cli/sample_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/no_throw.h"
#include "server/base/units.h"
#include "server/base/work_clock.h"

namespace feedwater::cli {
namespace {

constexpr int64_t kMaxBytes = int64_t{8} << 30;

}  // namespace

absl::StatusOr<SampleBatch::Memory> SampleBatch::Allocate(int64_t bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) + server::kOutputAlignment) /
                         server::kOutputAlignment * server::kOutputAlignment;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(server::kOutputAlignment, rounded)));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", server::FormatBytes(bytes), " of samples"));
  }
  return memory;
}

absl::StatusOr<SampleBatch> SampleBatch::Create(const server::Plan& plan, int64_t samples,
                                                std::unique_ptr<server::SampleMaker> maker) {
  SampleBatch batch;
  batch.plan_ = &plan;
  FW_ASSIGN_OR_RETURN(batch.layout_,
                      server::SlotLayout::Create(plan.outputs(), samples, kMaxBytes));
  int64_t staging = 0;
  if (__builtin_mul_overflow(plan.staging_bytes_per_sample(), samples, &staging) ||
      staging > kMaxBytes) {
    return absl::InvalidArgumentError("the memory of the batch's graph is too large");
  }
  FW_ASSIGN_OR_RETURN(batch.slot_, Allocate(batch.layout_.slot_bytes));
  FW_ASSIGN_OR_RETURN(batch.staging_, Allocate(staging));
  batch.memory_ = batch.layout_.MemoryOf(batch.slot_.get());
  batch.memory_.staging = batch.staging_.get();
  batch.maker_ = std::move(maker);
  batch.workspace_ = std::make_unique<server::SampleWorkspace>();
  return batch;
}

absl::Status SampleBatch::Run(const server::SampleInput& input, int64_t k) {
  return server::NoThrow([&] { return maker_->Run(input, k, memory_); });
}

absl::Status SampleBatch::RunFromPrefix(const server::SampleInput& input, int64_t k) {
  return server::NoThrow([&] { return maker_->RunFromPrefix(input, k, memory_); });
}

absl::Status SampleBatch::RunTimed(const server::SampleInput& input, int64_t k,
                                   absl::Span<int64_t> pass_ns) {
  workspace_->clock().Begin(plan_->limits().max_sample_ms, nullptr);
  return server::NoThrow([&] { return plan_->RunTimed(input, k, memory_, *workspace_, pass_ns); });
}

absl::Status SampleBatch::RunKeeping(const server::SampleInput& input, int64_t max_field_bytes,
                                     absl::FunctionRef<void(const server::Record&)> keep) {
  return server::NoThrow(
      [&] { return maker_->RunKeeping(input, 0, memory_, max_field_bytes, keep); });
}

absl::Status SampleBatch::Finish(int64_t samples, uint64_t global_batch, server::PhiloxKey key) {
  return server::NoThrow(
      [&] { return plan_->FinishBatch(samples, global_batch, key, memory_, *workspace_); });
}

server::Tensor SampleBatch::Output(size_t i, int64_t k) const {
  const server::SlotLayout::Output& output = layout_.outputs[i];
  if (output.field.is_ragged()) {
    const int64_t* const offsets = memory_.offsets[i];
    server::Tensor rows{output.field.spec.WithRows(offsets[k])};
    rows.data = memory_.outputs[i] + rows.bytes();
    rows.spec = output.field.spec.WithRows(offsets[k + 1] - offsets[k]);
    return rows;
  }
  return {output.field.spec, memory_.outputs[i] + k * output.sample_bytes};
}

}  // namespace feedwater::cli
