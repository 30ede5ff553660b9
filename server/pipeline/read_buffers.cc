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
    Buffer& old = idle_[largest];
    if (old.reservation_.bytes() == 0) base_used_ -= static_cast<int64_t>(old.capacity_);
    std::swap(old, idle_.back());
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
  return Make(capacity, share, base_used_ + static_cast<int64_t>(capacity) <= kBaseBytes);
}

absl::StatusOr<ReadBuffers::Buffer> ReadBuffers::GetReserved(size_t bytes, MemoryBudget* share) {
  return Make(RoundUp(bytes), share, /*in_base=*/false);
}

absl::StatusOr<ReadBuffers::Buffer> ReadBuffers::Make(size_t capacity, MemoryBudget* share,
                                                      bool in_base) {
  Buffer buffer;
  if (share == nullptr) share = budget_.get();
  if (!in_base && share != nullptr) {
    FW_ASSIGN_OR_RETURN(buffer.reservation_,
                        share->Reserve("read buffers", static_cast<int64_t>(capacity)));
  }
  void* data = std::aligned_alloc(kReadAlignment, capacity);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a read buffer of ", capacity, " bytes"));
  }
  buffer.data_.reset(static_cast<std::byte*>(data));
  buffer.capacity_ = capacity;
  if (buffer.reservation_.bytes() == 0) base_used_ += static_cast<int64_t>(capacity);
  return buffer;
}

void ReadBuffers::Put(Buffer buffer) {
  if (buffer.reservation_.bytes() > 0)
    return;                       // a large one: freed, and its reservation given back
  if (base_used_ > kBaseBytes) {  // only without a budget
    base_used_ -= static_cast<int64_t>(buffer.capacity_);
    return;
  }
  idle_.push_back(std::move(buffer));
}

void ReadBuffers::FreeIdle() {
  for (const Buffer& buffer : idle_) base_used_ -= static_cast<int64_t>(buffer.capacity_);
  idle_.clear();
  idle_.shrink_to_fit();
}

}  // namespace feedwater::server
