#include "server/cache/memory_tier.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace feedwater::server {
namespace {

constexpr uint64_t kLargeSegment = 64 << 20, kPage = 4096;

// Large, and still a small part of a small limit.
uint64_t SegmentBytes(int64_t limit) {
  const uint64_t bytes = std::min<uint64_t>(kLargeSegment, static_cast<uint64_t>(limit));
  return bytes / kPage * kPage;
}

size_t SegmentCount(int64_t limit) {
  const uint64_t bytes = SegmentBytes(limit);
  return bytes == 0 ? 0 : std::min<uint64_t>(static_cast<uint64_t>(limit) / bytes, kMaxSegments);
}

}  // namespace

MemoryTier::MemoryTier(int64_t limit, std::shared_ptr<ByteQuota> quota,
                       std::shared_ptr<MemoryBudget> budget)
    : segment_bytes_(SegmentBytes(std::max<int64_t>(limit, 0))),
      quota_(std::move(quota)),
      budget_(std::move(budget)),
      segments_(SegmentCount(std::max<int64_t>(limit, 0))) {
  full_ = segments_.empty();
}

MemoryTier::~MemoryTier() {
  MutexLock lock(&mu_);
  for (uint32_t i = 0; i < used_segments_; ++i) munmap(segments_[i].load(), segment_bytes_);
  quota_->Give(static_cast<int64_t>(used_segments_ * segment_bytes_));
}

bool MemoryTier::AddSegment() {
  if (used_segments_ == segments_.size()) return false;
  if (!quota_->Take(static_cast<int64_t>(segment_bytes_))) return false;
  MemoryReservation reservation;
  if (budget_ != nullptr) {
    absl::StatusOr<MemoryReservation> reserved =
        budget_->Reserve("caches", static_cast<int64_t>(segment_bytes_));
    if (!reserved.ok()) {
      quota_->Give(static_cast<int64_t>(segment_bytes_));
      return false;
    }
    reservation = *std::move(reserved);
  }
  void* memory =
      mmap(nullptr, segment_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    quota_->Give(static_cast<int64_t>(segment_bytes_));
    return false;
  }
  reservations_.push_back(std::move(reservation));
  segments_[used_segments_].store(static_cast<std::byte*>(memory), std::memory_order_release);
  ++used_segments_;
  next_ = 0;
  return true;
}

std::optional<BlockPlace> MemoryTier::Put(absl::Span<const std::byte> block) {
  // One unit more than the blocks: whoever reads the last one may load past its end.
  if (block.empty() || block.size() + kBlockUnit > segment_bytes_) return std::nullopt;
  BlockPlace place;
  {
    MutexLock lock(&mu_);
    if (used_segments_ == 0 || block.size() + kBlockUnit > segment_bytes_ - next_) {
      if (!AddSegment()) {
        full_.store(true, std::memory_order_relaxed);
        return std::nullopt;
      }
    }
    place.segment = used_segments_ - 1;
    place.offset = next_;
    place.length = block.size();
    next_ += block.size();
  }
  std::memcpy(segments_[place.segment].load(std::memory_order_relaxed) + place.offset, block.data(),
              block.size());
  bytes_.fetch_add(static_cast<int64_t>(block.size()), std::memory_order_relaxed);
  return place;
}

}  // namespace feedwater::server
