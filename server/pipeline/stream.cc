#include "server/pipeline/stream.h"

namespace feedwater::server {

BatchMemory Stream::MemoryOf(int slot) const {
  BatchMemory memory = layout_.MemoryOf(slots_->data(slot));
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
