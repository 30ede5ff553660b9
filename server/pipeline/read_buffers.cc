#include "server/pipeline/read_buffers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

constexpr size_t kLeastBytes = 64 << 10;

// Powers of two and the halves between them, so that few sizes exist and a buffer fits many
// records.
size_t RoundUp(size_t bytes) {
  size_t size = kLeastBytes;
  while (size < bytes) {
    if (size + size / 2 >= bytes) return size + size / 2;
    size *= 2;
  }
  return size;
}

}  // namespace

absl::StatusOr<ReadBuffers::Buffer> ReadBuffers::Get(size_t bytes, MemoryBudget* share) {
  // The smallest idle one that fits; when none does, the largest makes room for the new one.
  size_t best = idle_.size(), largest = idle_.size();
  for (size_t i = 0; i < idle_.size(); ++i) {
    const size_t capacity = idle_[i].capacity_;
    if (capacity >= bytes && (best == idle_.size() || capacity < idle_[best].capacity_)) best = i;
    if (largest == idle_.size() || capacity > idle_[largest].capacity_) largest = i;
  }
  if (best == idle_.size() && largest < idle_.size()) {
    std::swap(idle_[largest], idle_.back());
    idle_.pop_back();
    best = idle_.size();
  }
  if (best < idle_.size()) {
    Buffer buffer = std::move(idle_[best]);
    if (best + 1 != idle_.size()) idle_[best] = std::move(idle_.back());
    idle_.pop_back();
    return buffer;
  }

  const size_t capacity = RoundUp(bytes);
  return Make(capacity, share, HasPlanned(capacity));
}

absl::StatusOr<ReadBuffers::Buffer> ReadBuffers::GetForAway(size_t bytes, MemoryBudget* share) {
  const size_t capacity = RoundUp(bytes);
  absl::StatusOr<Buffer> buffer = Make(capacity, share, /*planned=*/false);
  if (buffer.ok() || *away_ + static_cast<int64_t>(capacity) > kBaseBytes / 2) return buffer;
  if (!HasPlanned(capacity)) FreeIdle();
  if (!HasPlanned(capacity)) return buffer;
  buffer = Make(capacity, share, /*planned=*/true);
  if (buffer.ok()) buffer->away_ = Count(away_, capacity);
  return buffer;
}

absl::StatusOr<ReadBuffers::Buffer> ReadBuffers::Make(size_t capacity, MemoryBudget* share,
                                                      bool planned) {
  Buffer buffer;
  if (share == nullptr) share = budget_.get();
  if (!planned && share != nullptr) {
    FW_ASSIGN_OR_RETURN(buffer.reservation_,
                        share->Reserve("read buffers", static_cast<int64_t>(capacity)));
  }
  buffer.data_.reset(static_cast<std::byte*>(std::aligned_alloc(kReadAlignment, capacity)));
  if (buffer.data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a read buffer of ", capacity, " bytes"));
  }
  buffer.capacity_ = capacity;
  if (buffer.reservation_.bytes() == 0) buffer.planned_ = Count(planned_, capacity);
  return buffer;
}

void ReadBuffers::Put(Buffer buffer) {
  if (buffer.reservation_.bytes() > 0) return;  // freed, and its reservation given back
  if (*planned_ > kBaseBytes) return;           // only without a budget
  buffer.away_ = Count();
  idle_.push_back(std::move(buffer));
}

void ReadBuffers::FreeIdle() { std::vector<Buffer>().swap(idle_); }

}  // namespace feedwater::server
