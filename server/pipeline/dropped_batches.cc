#include "server/pipeline/dropped_batches.h"

namespace feedwater::server {

DroppedBatches::~DroppedBatches() {
  for (const std::shared_ptr<Batch>& batch : batches_)
    batch->stream().slots().Abandon(batch->slot());
}

void DroppedBatches::DropAll(Stream& stream) {
  auto& state = stream.guarded_;
  for (const std::shared_ptr<Batch>& batch : state.open) Drop(batch);
  state.open.clear();
  state.filling = nullptr;
}

void DroppedBatches::DropBehind(const std::shared_ptr<Batch>& batch) {
  auto& state = batch->shared_stream()->guarded_;
  state.filling = nullptr;
  while (state.open.back() != batch) {
    Drop(state.open.back());
    state.open.pop_back();
  }
}

void DroppedBatches::LastWriterLeft(const std::shared_ptr<Batch>& batch) {
  batches_.push_back(batch);
}

void DroppedBatches::Drop(const std::shared_ptr<Batch>& batch) {
  batch->dropped_.store(true, std::memory_order_relaxed);
  if (batch->guarded_.writers == 0) batches_.push_back(batch);
}

}  // namespace feedwater::server
