#include "server/cache/record_cache.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/cache/block.h"

namespace feedwater::server {

RecordCache::RecordCache(Options options) : options_(std::move(options)) {}
RecordCache::~RecordCache() = default;

absl::StatusOr<std::unique_ptr<RecordCache>> RecordCache::Open(Options options) {
  std::unique_ptr<RecordCache> cache(new RecordCache(std::move(options)));
  const Options& given = cache->options_;
  if (given.records <= 0) return absl::InvalidArgumentError("a cache of no records");
  const bool on_disk = !given.folder.empty();
  const size_t records = static_cast<size_t>(given.records);
  if (given.budget != nullptr) {
    const int64_t bytes = given.records * (on_disk ? 24 : 8);
    FW_ASSIGN_OR_RETURN(cache->table_, given.budget->Reserve("caches", bytes));
  }
  cache->in_memory_ = std::vector<std::atomic<uint64_t>>(records);
  cache->memory_ =
      std::make_unique<MemoryTier>(given.memory_limit, given.memory_quota, given.budget);
  if (!on_disk) return cache;

  cache->on_disk_ = std::vector<std::atomic<uint64_t>>(records);
  cache->stamps_ = std::vector<std::atomic<uint64_t>>(records);
  DiskTier::Options disk;
  disk.folder = given.folder;
  disk.identity = given.identity;
  disk.records = given.records;
  disk.limit = given.disk_limit;
  disk.quota = given.disk_quota;
  disk.placed = [cache = cache.get()](int64_t record, const BlockPlace* place) {
    const uint64_t old = cache->on_disk_[record].exchange(
        place == nullptr ? kNowhere : place->Pack(), std::memory_order_release);
    cache->disk_records_ += (place != nullptr) - BlockPlace::IsPlace(old);
  };
  absl::StatusOr<std::unique_ptr<DiskTier>> opened = DiskTier::Open(std::move(disk));
  if (opened.ok()) {
    cache->disk_ = *std::move(opened);
  } else {
    spdlog::warn("the cache keeps nothing on disk: {}", std::string(opened.status().message()));
  }
  return cache;
}

RecordCache::Found RecordCache::Find(int64_t record) const {
  Found found;
  const uint64_t in_memory = in_memory_[record].load(std::memory_order_acquire);
  if (BlockPlace::IsPlace(in_memory)) {
    memory_hits_.fetch_add(1, std::memory_order_relaxed);
    found.where = Where::kMemory;
    found.block = TrustedBlock(memory_->Get(BlockPlace::Unpack(in_memory)));
    return found;
  }
  const uint64_t on_disk =
      disk_ == nullptr ? kNowhere : on_disk_[record].load(std::memory_order_acquire);
  if (BlockPlace::IsPlace(on_disk)) {
    disk_hits_.fetch_add(1, std::memory_order_relaxed);
    const BlockPlace place = BlockPlace::Unpack(on_disk);
    found.where = Where::kDisk;
    found.extent = {place.segment, static_cast<int64_t>(place.offset),
                    static_cast<int64_t>(place.length)};
    return found;
  }
  misses_.fetch_add(1, std::memory_order_relaxed);
  return found;
}

bool RecordCache::Wants(int64_t record) const {
  const bool memory =
      !memory_->full() && in_memory_[record].load(std::memory_order_relaxed) == kNowhere;
  const bool disk = disk_ != nullptr && !disk_->full() &&
                    on_disk_[record].load(std::memory_order_relaxed) == kNowhere;
  return memory || disk;
}

bool RecordCache::PutInMemory(int64_t record, absl::Span<const std::byte> block) {
  uint64_t nowhere = kNowhere;
  if (memory_->full() || !in_memory_[record].compare_exchange_strong(nowhere, kClaimed))
    return false;
  const std::optional<BlockPlace> place = memory_->Put(block);
  in_memory_[record].store(place ? place->Pack() : kNowhere, std::memory_order_release);
  if (place) memory_records_.fetch_add(1, std::memory_order_relaxed);
  return place.has_value();
}

void RecordCache::Put(int64_t record, uint64_t stamp, absl::Span<const std::byte> payload) {
  if (payload.size() > kMaxBlockBytes - kBlockUnit) return;
  static thread_local std::vector<std::byte> block;
  WriteBlock(record, stamp, payload, &block);
  PutInMemory(record, block);
  if (disk_ == nullptr) return;
  uint64_t nowhere = kNowhere;
  if (!on_disk_[record].compare_exchange_strong(nowhere, kClaimed)) return;
  stamps_[record].store(stamp, std::memory_order_release);
  if (!disk_->Append(record, stamp, block)) on_disk_[record].store(kNowhere);
}

absl::StatusOr<BlockView> RecordCache::TakeFromDisk(
    int64_t record, const Extent& from, absl::Span<const std::byte> bytes,
    absl::FunctionRef<absl::StatusOr<uint64_t>()> stamp_now) {
  absl::StatusOr<BlockView> block = ReadBlock(record, bytes);
  if (!block.ok()) {
    damaged_.fetch_add(1, std::memory_order_relaxed);
    TakeOut(record, from);
    return block;
  }
  uint64_t stamp = stamps_[record].load(std::memory_order_acquire);
  if (stamp == 0) {
    FW_ASSIGN_OR_RETURN(stamp, stamp_now());
    stamps_[record].store(stamp, std::memory_order_release);
  }
  if (stamp != block->stamp) {
    out_of_date_.fetch_add(1, std::memory_order_relaxed);
    TakeOut(record, from);
    return absl::DataLossError("kept from a file that has changed since");
  }
  PutInMemory(record, bytes.first(BlockBytes(block->payload.size())));
  return block;
}

// Unless another block has come in its place while this one was being read.
void RecordCache::TakeOut(int64_t record, const Extent& from) {
  uint64_t place = BlockPlace{from.object, static_cast<uint64_t>(from.offset),
                              static_cast<uint64_t>(from.length)}
                       .Pack();
  if (!on_disk_[record].compare_exchange_strong(place, kNowhere)) return;
  disk_records_.fetch_sub(1, std::memory_order_relaxed);
  disk_->Forget(record);
}

void RecordCache::Flush() {
  if (disk_ != nullptr) disk_->Flush();
}

RecordCache::Counts RecordCache::counts() const {
  Counts counts;
  counts.memory_bytes = memory_->bytes();
  counts.disk_bytes = disk_ == nullptr ? 0 : disk_->bytes();
  counts.memory_records = memory_records_;
  counts.disk_records = disk_records_;
  counts.memory_hits = memory_hits_;
  counts.disk_hits = disk_hits_;
  counts.misses = misses_;
  counts.damaged = damaged_;
  counts.out_of_date = out_of_date_;
  return counts;
}

}  // namespace feedwater::server
