#include "server/base/huge_region.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace feedwater::server {
namespace {

constexpr size_t kHugePage = 2 << 20;

size_t AlignUp(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

std::shared_ptr<HugeRegion> HugeRegion::Create(size_t bytes) {
  const size_t kept = AlignUp(bytes, kHugePage), mapped = kSpread * kept;
  // mmap aligns to small pages: what stands before and behind the aligned part is given back.
  void* const all =
      mmap(nullptr, mapped + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(all);
  const size_t before =
      AlignUp(reinterpret_cast<size_t>(first), kHugePage) - reinterpret_cast<size_t>(first);
  if (before > 0) munmap(first, before);
  if (before < kHugePage) munmap(first + before + mapped, kHugePage - before);
  std::shared_ptr<HugeRegion> region(new HugeRegion(first + before, mapped, kept));
  if (mprotect(region->begin_, kept, PROT_READ | PROT_WRITE) != 0) return nullptr;
  madvise(region->begin_, mapped, MADV_HUGEPAGE);  // refused where there are none: then without
  return region;
}

HugeRegion::HugeRegion(std::byte* begin, size_t mapped, size_t kept)
    : begin_(begin), mapped_(mapped), kept_(kept) {
  holes_.emplace(0, mapped);
}

HugeRegion::~HugeRegion() { munmap(begin_, mapped_); }

void HugeRegion::ReturnPages(size_t offset, size_t bytes) const {
  madvise(begin_ + offset, bytes, MADV_DONTNEED);
}

bool HugeRegion::Protect(size_t offset, size_t bytes, int protection) const {
  const size_t begin = std::max(offset, kept_), end = offset + bytes;
  return end <= begin || mprotect(begin_ + begin, end - begin, protection) == 0;
}

std::byte* HugeRegion::Take(size_t bytes) {
  const size_t wanted = AlignUp(std::max<size_t>(bytes, 1), kAlignment);
  MutexLock lock(&mu_);
  const auto hole = std::find_if(holes_.begin(), holes_.end(),
                                 [wanted](const auto& entry) { return entry.second >= wanted; });
  if (hole == holes_.end()) return nullptr;
  const auto [offset, size] = *hole;
  if (!Protect(offset, wanted, PROT_READ | PROT_WRITE)) return nullptr;
  holes_.erase(hole);
  if (size > wanted) holes_.emplace(offset + wanted, size - wanted);
  if (offset + wanted > kept_) {
    // Its pages come instead of those that free pieces have kept.
    if (in_use_behind_ == 0) {
      for (const auto& [at, free] : holes_)
        if (at < kept_) ReturnPages(at, std::min(free, kept_ - at));
    }
    in_use_behind_ += wanted;
  }
  return begin_ + offset;
}

void HugeRegion::Give(std::byte* piece, size_t bytes) {
  size_t offset = static_cast<size_t>(piece - begin_),
         size = AlignUp(std::max<size_t>(bytes, 1), kAlignment);
  MutexLock lock(&mu_);
  const bool is_behind = offset + size > kept_;
  if (is_behind || in_use_behind_ > 0) ReturnPages(offset, size);
  if (is_behind) in_use_behind_ -= size;
  Protect(offset, size, PROT_NONE);
  const auto next = holes_.lower_bound(offset);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      holes_.erase(before);
    }
  }
  if (next != holes_.end() && offset + size == next->first) {
    size += next->second;
    holes_.erase(next);
  }
  holes_.emplace(offset, size);
}

void HugeRegion::ReturnFree() {
  MutexLock lock(&mu_);
  for (const auto& [offset, bytes] : holes_) ReturnPages(offset, bytes);
}

}  // namespace feedwater::server
