#include "server/cache/record_cache.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log_limiter.h"
#include "server/base/no_throw.h"
#include "server/base/status.h"
#include "server/cache/block.h"

namespace feedwater::server {
namespace {

constexpr size_t kKeptBlockBytes = 4 << 20;

}  // namespace

RecordCache::RecordCache(Options options) : options_(std::move(options)) {}
RecordCache::~RecordCache() {
  if (memory_table_bytes_ > 0) options_.memory_quota->Give(memory_table_bytes_);
}

absl::StatusOr<std::unique_ptr<RecordCache>> RecordCache::Open(Options options) {
  std::unique_ptr<RecordCache> cache(new RecordCache(std::move(options)));
  const Options& given = cache->options_;
  if (given.records <= 0) return absl::InvalidArgumentError("a cache of no records");
  if (given.memory_limit > 0) cache->TakeMemoryTable();
  const int64_t memory_limit = cache->has_memory() ? given.memory_limit : 0;
  cache->memory_ = std::make_unique<MemoryTier>(memory_limit, given.memory_quota, given.budget);
  if (!given.folder.empty()) cache->OpenDisk(given.disk_budget);
  return cache;
}

void RecordCache::TakeMemoryTable() {
  const auto bytes = options_.records * static_cast<int64_t>(sizeof(in_memory_[0]));
  if (!options_.memory_quota->Take(bytes)) return;
  if (options_.budget != nullptr) {
    auto reserved = options_.budget->Reserve("caches", bytes);
    if (!reserved.ok()) {
      options_.memory_quota->Give(bytes);
      return;
    }
    memory_table_ = *std::move(reserved);
  }
  memory_table_bytes_ = bytes;
  in_memory_ = std::vector<std::atomic<uint64_t>>(static_cast<size_t>(options_.records));
}

void RecordCache::ReopenDisk(std::shared_ptr<MemoryBudget> budget) {
  disk_ = nullptr;
  disk_table_.Release();
  disk_records_ = 0;
  OpenDisk(std::move(budget));
}

void RecordCache::OpenDisk(std::shared_ptr<MemoryBudget> budget) {
  const absl::Status opened = NoThrow([&] { return OpenDiskTier(std::move(budget)); });
  if (opened.ok()) return;
  for (auto* table : {&on_disk_, &disk_stamps_}) std::vector<std::atomic<uint64_t>>().swap(*table);
  disk_table_.Release();
  disk_records_ = 0;
  if (ClientLog().Admits("caches without a disk", LogLimiter::kNoSource))
    spdlog::warn("the cache keeps nothing on disk: {}", std::string(opened.message()));
}

absl::Status RecordCache::OpenDiskTier(std::shared_ptr<MemoryBudget> budget) {
  const Options& given = options_;
  const auto records = static_cast<size_t>(given.records);
  if (budget != nullptr) {
    const size_t entry = sizeof(on_disk_[0]) + sizeof(disk_stamps_[0]);
    FW_ASSIGN_OR_RETURN(disk_table_,
                        budget->Reserve("caches", static_cast<int64_t>(records * entry)));
  }
  on_disk_ = std::vector<std::atomic<uint64_t>>(records);
  disk_stamps_ = std::vector<std::atomic<uint64_t>>(records);
  DiskTier::Options disk;
  disk.folder = given.folder;
  disk.identity = given.identity;
  disk.records = given.records;
  disk.limit = given.disk_limit;
  disk.quota = given.disk_quota;
  disk.budget = std::move(budget);
  disk.saver = given.saver;
  disk.placed = [this](int64_t record, const BlockPlace* place, uint64_t stamp) {
    if (place != nullptr) disk_stamps_[record].store(stamp, std::memory_order_release);
    const uint64_t old = on_disk_[record].exchange(place == nullptr ? kNowhere : place->Pack(),
                                                   std::memory_order_release);
    disk_records_ += (place != nullptr) - BlockPlace::IsPlace(old);
  };
  FW_ASSIGN_OR_RETURN(disk_, DiskTier::Open(std::move(disk)));
  return absl::OkStatus();
}

void RecordCache::RaiseLimits(int64_t memory_limit, int64_t disk_limit) {
  if (has_memory()) memory_->RaiseLimit(memory_limit);
  if (disk_ != nullptr) disk_->RaiseLimit(disk_limit);
}

BlockView RecordCache::InMemory(uint64_t packed_place) const {
  return TrustedBlock(memory_->Get(BlockPlace::Unpack(packed_place)));
}

void RecordCache::PrefetchBlock(int64_t record) const {
  if (!has_memory()) return;
  const uint64_t place = in_memory_[record].load(std::memory_order_acquire);
  if (BlockPlace::IsPlace(place)) __builtin_prefetch(memory_->Get(BlockPlace::Unpack(place)));
}

absl::Span<const std::byte> RecordCache::FindInMemory(int64_t record, uint64_t stamp) const {
  if (!has_memory()) return {};
  const uint64_t place = in_memory_[record].load(std::memory_order_acquire);
  if (!BlockPlace::IsPlace(place)) return {};
  const BlockView block = InMemory(place);
  return block.stamp == stamp ? block.payload : absl::Span<const std::byte>();
}

RecordCache::Found RecordCache::Find(int64_t record, uint64_t stamp) const {
  Found found;
  const uint64_t in_memory =
      has_memory() ? in_memory_[record].load(std::memory_order_acquire) : kNowhere;
  if (BlockPlace::IsPlace(in_memory)) {
    found.block = InMemory(in_memory);
    if (found.block.stamp == stamp) {
      memory_hits_.fetch_add(1, std::memory_order_relaxed);
      found.where = Where::kMemory;
      return found;
    }
  }
  const uint64_t on_disk = disk_ == nullptr || !disk_->is_readable()
                               ? kNowhere
                               : on_disk_[record].load(std::memory_order_acquire);
  if (BlockPlace::IsPlace(on_disk) &&
      disk_stamps_[record].load(std::memory_order_acquire) == stamp) {
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

bool RecordCache::Has(int64_t record) const {
  return (has_memory() &&
          BlockPlace::IsPlace(in_memory_[record].load(std::memory_order_relaxed))) ||
         (disk_ != nullptr && disk_->is_readable() &&
          BlockPlace::IsPlace(on_disk_[record].load(std::memory_order_relaxed)));
}

bool RecordCache::Wants(int64_t record, uint64_t stamp) const {
  if (!memory_->full()) {
    const uint64_t there = in_memory_[record].load(std::memory_order_acquire);
    if (there == kNowhere) return true;
    if (BlockPlace::IsPlace(there) && InMemory(there).stamp != stamp) return true;
  }
  if (disk_ == nullptr || disk_->full()) return false;
  const uint64_t there = on_disk_[record].load(std::memory_order_acquire);
  return there == kNowhere || (BlockPlace::IsPlace(there) &&
                               disk_stamps_[record].load(std::memory_order_relaxed) != stamp);
}

bool RecordCache::Claim(std::atomic<uint64_t>* place, bool is_out_of_date, uint64_t there,
                        std::atomic<int64_t>* kept) {
  if (there != kNowhere && !is_out_of_date) return false;
  if (!place->compare_exchange_strong(there, kClaimed)) return false;
  if (is_out_of_date) kept->fetch_sub(1, std::memory_order_relaxed);
  return true;
}

// What was there stays where it is, since somebody may be reading it.
bool RecordCache::PutInMemory(int64_t record, uint64_t stamp, absl::Span<const std::byte> block) {
  if (memory_->full()) return false;
  const uint64_t there = in_memory_[record].load(std::memory_order_acquire);
  const bool is_out_of_date = BlockPlace::IsPlace(there) && InMemory(there).stamp != stamp;
  if (!Claim(&in_memory_[record], is_out_of_date, there, &memory_records_)) return false;
  const std::optional<BlockPlace> place = memory_->Put(block);
  in_memory_[record].store(place ? place->Pack() : kNowhere, std::memory_order_release);
  if (place) memory_records_.fetch_add(1, std::memory_order_relaxed);
  if (is_out_of_date) out_of_date_.fetch_add(1, std::memory_order_relaxed);
  return place.has_value();
}

void RecordCache::Put(int64_t record, uint64_t stamp, absl::Span<const std::byte> payload) {
  if (payload.size() > kMaxBlockBytes - kBlockUnit) return;
  // Large blocks have memory of their own, or every worker would keep that of its largest one.
  static thread_local std::vector<std::byte> kept;
  std::vector<std::byte> large;
  std::vector<std::byte>& block = BlockBytes(payload.size()) > kKeptBlockBytes ? large : kept;
  WriteBlock(record, stamp, payload, &block);
  PutInMemory(record, stamp, block);
  if (disk_ == nullptr || disk_->full()) return;
  const uint64_t there = on_disk_[record].load(std::memory_order_acquire);
  const bool is_out_of_date =
      BlockPlace::IsPlace(there) && disk_stamps_[record].load(std::memory_order_acquire) != stamp;
  if (!Claim(&on_disk_[record], is_out_of_date, there, &disk_records_)) return;
  if (is_out_of_date) out_of_date_.fetch_add(1, std::memory_order_relaxed);
  if (!disk_->Append(record, stamp, block)) on_disk_[record].store(kNowhere);
}

absl::StatusOr<BlockView> RecordCache::TakeFromDisk(int64_t record, uint64_t stamp,
                                                    const Extent& from,
                                                    absl::Span<const std::byte> bytes) {
  absl::StatusOr<BlockView> block = ReadBlock(record, bytes);
  if (!block.ok()) {
    damaged_.fetch_add(1, std::memory_order_relaxed);
    TakeOut(record, from);
    return block;
  }
  if (stamp != block->stamp) {
    out_of_date_.fetch_add(1, std::memory_order_relaxed);
    TakeOut(record, from);
    return absl::DataLossError("kept from a file that has changed since");
  }
  disk_->ReadWell();
  PutInMemory(record, stamp, bytes.first(BlockBytes(block->payload.size())));
  return block;
}

void RecordCache::ReadFailed(int64_t record, const Extent& from, const absl::Status& status) {
  damaged_.fetch_add(1, std::memory_order_relaxed);
  TakeOut(record, from);
  disk_->ReadFailed(status);
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
