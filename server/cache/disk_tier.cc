#include "server/cache/disk_tier.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log_limiter.h"
#include "server/base/no_throw.h"
#include "server/base/status.h"
#include "server/cache/cache_folder.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxQueuedBytes = 64 << 20;
constexpr uint64_t kEntrySeed = 0x314c4e4a43574600;  // of the hash of a journal's entry

absl::Status WriteAt(int fd, const void* data, size_t size, uint64_t offset) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = pwrite(fd, from, size, static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return ErrnoStatus(wrote < 0 ? errno : ENOSPC, "writing the cache");
    from += wrote;
    size -= static_cast<size_t>(wrote);
    offset += static_cast<uint64_t>(wrote);
  }
  return absl::OkStatus();
}

}  // namespace

struct DiskTier::JournalEntry {
  uint64_t record, place, stamp, hash;

  uint64_t Hash() const {
    return XXH3_64bits_withSeed(this, offsetof(JournalEntry, hash), kEntrySeed);
  }
};

DiskTier::DiskTier(Options options) : options_(std::move(options)), limit_(options_.limit) {}

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::Open(Options options) {
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options)));
  const std::string& path = tier->options_.folder;
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("making the cache's folder ", path));
  tier->folder_ = Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Fd for_root(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!tier->folder_ || !for_root)
    return ErrnoStatus(errno, absl::StrCat("opening the cache's folder ", path));
  tier->root_ = std::make_unique<Root>("cache", path, std::move(for_root));
  FW_RETURN_IF_ERROR(Annotate(tier->Recover(), path));
  const std::shared_ptr<Saver>& shared = tier->options_.saver;
  FW_ASSIGN_OR_RETURN(tier->writer_,
                      (shared != nullptr ? shared : Saver::Create())->Add([tier = tier.get()] {
                        return tier->WriteNext();
                      }));
  return tier;
}

DiskTier::~DiskTier() {
  if (writer_ != nullptr) Flush();
  writer_.reset();
  options_.quota->Give(bytes());
}

std::string DiskTier::ObjectPath(uint32_t segment) const { return SegmentName(segment); }

// --- what an earlier daemon left

absl::Status DiskTier::Recover() {
  journal_ =
      Fd(openat(folder_.get(), kJournalName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info;
  if (!journal_ || fstat(journal_.get(), &info) != 0)
    return ErrnoStatus(errno, "opening the journal");
  const JournalHeader wanted = MakeJournalHeader(options_.identity, options_.records);
  JournalHeader header = {};
  const bool ours = pread(journal_.get(), &header, sizeof(header), 0) == sizeof(header) &&
                    std::memcmp(&header, &wanted, sizeof(header)) == 0;
  if (!ours) return StartJournal();
  return ReplayJournal(static_cast<uint64_t>(info.st_size));
}

absl::Status DiskTier::StartJournal() {
  if (ftruncate(journal_.get(), 0) != 0) return ErrnoStatus(errno, "emptying the journal");
  RemoveSegments(options_.folder);
  const JournalHeader header = MakeJournalHeader(options_.identity, options_.records);
  FW_RETURN_IF_ERROR(WriteAt(journal_.get(), &header, sizeof(header), 0));
  journal_end_ = sizeof(header);
  return absl::OkStatus();
}

absl::Status DiskTier::ReplayJournal(uint64_t journal_bytes) {
  std::vector<uint64_t> segment_sizes;
  for (struct stat info; segment_sizes.size() < kMaxSegments &&
                         fstatat(folder_.get(), SegmentName(segment_sizes.size()).c_str(), &info,
                                 AT_SYMLINK_NOFOLLOW) == 0 &&
                         S_ISREG(info.st_mode);) {
    segment_sizes.push_back(static_cast<uint64_t>(info.st_size));
  }
  std::vector<JournalEntry> chunk(4096);
  uint64_t at = sizeof(JournalHeader);
  for (bool whole = true; whole && at < journal_bytes;) {
    const ssize_t got = pread(journal_.get(), chunk.data(), chunk.size() * sizeof(JournalEntry),
                              static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    const size_t count = got <= 0 ? 0 : static_cast<size_t>(got) / sizeof(JournalEntry);
    if (count == 0) break;
    for (size_t i = 0; i < count; ++i) {
      const JournalEntry& entry = chunk[i];
      whole = entry.hash == entry.Hash() && entry.record < static_cast<uint64_t>(options_.records);
      if (!whole) break;
      at += sizeof(JournalEntry);
      if (entry.place == kNowhere) {
        options_.placed(static_cast<int64_t>(entry.record), nullptr, 0);
        continue;
      }
      if (!BlockPlace::IsPlace(entry.place)) continue;
      const BlockPlace place = BlockPlace::Unpack(entry.place);
      if (place.segment >= segment_sizes.size() || place.length == 0 ||
          place.offset + place.length > segment_sizes[place.segment]) {
        continue;  // named, but never arrived
      }
      options_.placed(static_cast<int64_t>(entry.record), &place, entry.stamp);
    }
  }
  // What follows the last whole entry is written over.
  if (ftruncate(journal_.get(), static_cast<off_t>(at)) != 0)
    return ErrnoStatus(errno, "cutting the journal");
  journal_end_ = at;
  // One that a full disk left empty is begun again.
  while (!segment_sizes.empty() && segment_sizes.back() == 0) segment_sizes.pop_back();
  for (uint64_t size : segment_sizes) bytes_ += static_cast<int64_t>(size);
  options_.quota->Force(bytes());
  // A fresh segment: whatever stands behind the last named block of the old one is left alone.
  segment_number_ = static_cast<uint32_t>(segment_sizes.size());
  return absl::OkStatus();
}

// --- writing

void DiskTier::RaiseLimit(int64_t limit) {
  int64_t before = limit_;
  while (limit > before && !limit_.compare_exchange_weak(before, limit)) {
  }
  full_ = false;
}

bool DiskTier::Append(int64_t record, uint64_t stamp, absl::Span<const std::byte> block) {
  if (full()) return false;
  const int64_t size = static_cast<int64_t>(block.size());
  // Without the lock: the quota may have to make room first.
  const bool fits = bytes_.fetch_add(size) <= limit_ - size && options_.quota->Take(size);
  if (!fits) {
    bytes_ -= size;
    full_ = true;
    return false;
  }
  if (!Queue(record, stamp, block)) {
    bytes_ -= size;
    options_.quota->Give(size);
    return false;
  }
  writer_->Wake();
  return true;
}

// False when the disk is behind, or memory short.
bool DiskTier::Queue(int64_t record, uint64_t stamp, absl::Span<const std::byte> block) {
  Item item{record, stamp, {}};
  if (options_.budget != nullptr) {
    auto memory = options_.budget->Reserve("cache writes", static_cast<int64_t>(block.size()));
    if (!memory.ok()) return false;
    item.memory = *std::move(memory);
  }
  {
    MutexLock lock(&mu_);
    if (queued_bytes_ + block.size() > kMaxQueuedBytes && queued_bytes_ > 0) return false;
    queued_bytes_ += block.size();
  }
  const absl::Status queued = NoThrow([&] {
    item.block.assign(block.begin(), block.end());  // without the lock
    MutexLock lock(&mu_);
    queue_.push_back(std::move(item));
    return absl::OkStatus();
  });
  if (queued.ok()) return true;
  MutexLock lock(&mu_);
  queued_bytes_ -= block.size();
  return false;
}

void DiskTier::ReadFailed(const absl::Status& status) {
  if (read_errors_.fetch_add(1) + 1 != kMostReadErrors) return;
  is_broken_ = true;
  if (ClientLog().Admits("caches whose disk failed", LogLimiter::kNoSource)) {
    spdlog::warn("cache {}: its disk is used no longer: {}", options_.folder,
                 std::string(status.message()));
  }
}

void DiskTier::Forget(int64_t record) {
  {
    MutexLock lock(&mu_);
    queue_.push_back({record, 0, {}});
  }
  writer_->Wake();
}

void DiskTier::Flush() {
  MutexLock lock(&mu_);
  while (!queue_.empty() || writing_) changed_.Wait(&mu_);
}

bool DiskTier::WriteNext() {
  Item item;
  {
    MutexLock lock(&mu_);
    if (queue_.empty()) return false;
    item = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= item.block.size();
    writing_ = true;
  }
  Carry(item);
  MutexLock lock(&mu_);
  writing_ = false;
  changed_.SignalAll();
  return !queue_.empty();
}

void DiskTier::Carry(const Item& item) {
  if (item.block.empty()) {
    AppendJournal(item.record, kNowhere, 0).IgnoreError();  // it is found to be wrong again then
    return;
  }
  BlockPlace place;
  const absl::Status written =
      failed_ ? absl::UnavailableError("the disk failed before") : WriteItem(item, &place);
  if (!written.ok()) {
    const int64_t size = static_cast<int64_t>(item.block.size());
    bytes_ -= size;
    options_.quota->Give(size);
    is_broken_ = true;
    if (!std::exchange(failed_, true) &&
        ClientLog().Admits("caches whose disk failed", LogLimiter::kNoSource)) {
      spdlog::warn("cache {}: no more records are kept on disk: {}", options_.folder,
                   std::string(written.message()));
    }
  }
  options_.placed(item.record, written.ok() ? &place : nullptr, item.stamp);
}

absl::Status DiskTier::WriteItem(const Item& item, BlockPlace* place) {
  if (segment_ && segment_end_ + item.block.size() > kMaxSegmentBytes) {
    segment_ = Fd();
    ++segment_number_;
  }
  if (!segment_) {
    if (segment_number_ >= kMaxSegments) return absl::ResourceExhaustedError("too many segments");
    segment_ = Fd(openat(folder_.get(), SegmentName(segment_number_).c_str(),
                         O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!segment_) return ErrnoStatus(errno, "making a segment");
    segment_end_ = 0;
  }
  absl::Status written =
      WriteAt(segment_.get(), item.block.data(), item.block.size(), segment_end_);
  *place = {segment_number_, segment_end_, item.block.size()};
  if (written.ok()) written = AppendJournal(item.record, place->Pack(), item.stamp);
  if (written.ok()) {
    segment_end_ += item.block.size();
  } else {  // what arrived of it would count at the next start
    [[maybe_unused]] const int cut = ftruncate(segment_.get(), static_cast<off_t>(segment_end_));
  }
  return written;
}

absl::Status DiskTier::AppendJournal(int64_t record, uint64_t packed_place, uint64_t stamp) {
  JournalEntry entry = {static_cast<uint64_t>(record), packed_place, stamp, 0};
  entry.hash = entry.Hash();
  FW_RETURN_IF_ERROR(WriteAt(journal_.get(), &entry, sizeof(entry), journal_end_));
  journal_end_ += sizeof(entry);
  return absl::OkStatus();
}

}  // namespace feedwater::server
