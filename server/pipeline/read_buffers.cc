#include "server/pipeline/read_buffers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/sanitized.h"
#include "server/storage/engine.h"

namespace feedwater::server {
namespace {

constexpr size_t kLeastBytes = 64 << 10;

// What a direct read of so many bytes may take beside them, on both sides.
constexpr size_t kEdges = 3 * kReadAlignment;

// Powers of two and the halves between them, with and without the edges of a direct read, so that
// few sizes exist and a buffer fits many records.
size_t RoundUp(size_t bytes) {
  for (size_t size = kLeastBytes;; size *= 2) {
    for (const size_t fits : {size, size + kEdges, size + size / 2, size + size / 2 + kEdges})
      if (fits >= bytes) return fits;
  }
}

}  // namespace

// A region would hide from AddressSanitizer what is read beyond a buffer.
ReadBuffers::ReadBuffers(std::shared_ptr<MemoryBudget> budget)
    : budget_(std::move(budget)), region_(kSanitized ? nullptr : HugeRegion::Create(kBaseBytes)) {}

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
  if (planned && region_ != nullptr)
    buffer.data_ = {region_->Take(capacity), Buffer::Free{region_, capacity}};
  if (buffer.data_ == nullptr) {
    buffer.data_ = {static_cast<std::byte*>(std::aligned_alloc(kReadAlignment, capacity)),
                    Buffer::Free()};
  }
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

void ReadBuffers::FreeIdle() {
  std::vector<Buffer>().swap(idle_);
  if (region_ != nullptr) region_->ReturnFree();
}

}  // namespace feedwater::server
