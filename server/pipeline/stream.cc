#include "server/pipeline/stream.h"

namespace feedwater::server {

BatchMemory Stream::MemoryOf(int slot) const {
  BatchMemory memory;
  memory.batch_size = layout_.batch_size;
  std::byte* data = slots_->data(slot);
  memory.outputs.reserve(layout_.outputs.size());
  for (const SlotLayout::Output& output : layout_.outputs) {
    memory.outputs.push_back(data + output.offset);
  }
  if (staging_.data != nullptr)
    memory.staging = staging_.data.get() + slot * staging_.bytes_per_slot;
  return memory;
}

Batch::Batch(std::shared_ptr<Stream> stream, OrderCursor at, const BatchMeta& meta, int slot)
    : stream_(std::move(stream)),
      at_(std::move(at)),
      meta_(meta),
      slot_(slot),
      memory_(stream_->MemoryOf(slot)) {}

uint64_t Batch::number() const {
  return static_cast<uint64_t>(meta_.step) * static_cast<uint64_t>(job().config().world_size) +
         static_cast<uint64_t>(stream_->rank());
}

}  // namespace feedwater::server
