#include "server/cache/memory_tier.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace feedwater::server {
namespace {

// Segments double, so that a small dataset takes little of what all share.
constexpr uint64_t kSmallSegment = 1 << 20, kLargeSegment = 64 << 20, kPage = 4096;
constexpr size_t kDoublings = 6;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
uint64_t WholePages(int64_t bytes) {
  return static_cast<uint64_t>(std::max<int64_t>(bytes, 0)) / kPage * kPage;
}

// As many as may ever be: the growing ones, the large ones, and what is left at the end.
size_t SegmentCount(uint64_t limit) {
  return limit == 0 ? 0 : std::min(limit / kLargeSegment + kDoublings + 2, kMaxSegments);
}

}  // namespace

MemoryTier::MemoryTier(int64_t limit, std::shared_ptr<ByteQuota> quota,
                       std::shared_ptr<MemoryBudget> budget)
    : quota_(std::move(quota)),
      budget_(std::move(budget)),
      segments_(SegmentCount(static_cast<uint64_t>(std::max<int64_t>(quota_->whole_limit(), 0)))),
      limit_(WholePages(limit)) {
  full_ = limit_ == 0 || segments_.empty();
}

void MemoryTier::RaiseLimit(int64_t limit) {
  MutexLock lock(&mu_);
  limit_ = std::max(limit_, WholePages(limit));
  full_ = limit_ == 0 || segments_.empty();
}

MemoryTier::~MemoryTier() {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < segment_bytes_.size(); ++i) munmap(segments_[i].load(), segment_bytes_[i]);
  quota_->Give(static_cast<int64_t>(all_bytes_));
}

// A segment that has room for such a block.
bool MemoryTier::AddSegment(uint64_t block_bytes) {
  const size_t index = segment_bytes_.size();
  if (index == segments_.size()) return false;
  const uint64_t left = limit_ - all_bytes_, needed = RoundUp(block_bytes + kBlockUnit);
  const uint64_t usual = kSmallSegment << std::min(index, kDoublings);
  // The quota's last bytes are taken, too, where less than usual is left.
  const uint64_t unused = WholePages(quota_->free());
  const uint64_t bytes = std::min({std::max(usual, needed), left, unused});
  if (bytes < needed || bytes > kMaxSegmentBytes) return false;
  if (!quota_->Take(static_cast<int64_t>(bytes))) return false;
  MemoryReservation reservation;
  if (budget_ != nullptr) {
    absl::StatusOr<MemoryReservation> reserved =
        budget_->Reserve("caches", static_cast<int64_t>(bytes));
    if (!reserved.ok()) {
      quota_->Give(static_cast<int64_t>(bytes));
      return false;
    }
    reservation = *std::move(reserved);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    quota_->Give(static_cast<int64_t>(bytes));
    return false;
  }
  // All of it is reserved, and looked at in random order: with small pages each look would walk the
  // page table. Where the kernel has no huge pages, it is as before.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  reservations_.push_back(std::move(reservation));
  segments_[index].store(static_cast<std::byte*>(memory), std::memory_order_release);
  segment_bytes_.push_back(bytes);
  all_bytes_ += bytes;
  next_ = 0;
  return true;
}

std::optional<BlockPlace> MemoryTier::Put(absl::Span<const std::byte> block) {
  BlockPlace place;
  {
    MutexLock lock(&mu_);
    // One unit more than the blocks: whoever reads the last one may load past its end.
    if (block.empty() || block.size() + kBlockUnit > std::min(limit_, kLargeSegment))
      return std::nullopt;
    if (segment_bytes_.empty() || block.size() + kBlockUnit > segment_bytes_.back() - next_) {
      if (!AddSegment(block.size())) {
        full_.store(true, std::memory_order_relaxed);
        return std::nullopt;
      }
    }
    place.segment = static_cast<uint32_t>(segment_bytes_.size()) - 1;
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
