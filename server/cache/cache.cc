#include "server/cache/cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/base/no_throw.h"
#include "server/base/own_files.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr char kLockName[] = "lock";
constexpr size_t kMostIdle = 14;  // caches that stay open although nobody uses them
constexpr size_t kMostSeekStores = 16;
constexpr int64_t kTableEntry = 8;

}  // namespace

int64_t Cache::UnusedFolder::bytes() const {
  int64_t sum = 0;
  for (const SegmentFile& segment : segments) sum += segment.bytes;
  return sum;
}

Cache::Cache(Options options)
    : options_(std::move(options)),
      memory_(std::make_shared<ByteQuota>(options_.memory_bytes)),
      disk_(std::make_shared<ByteQuota>(options_.disk_bytes)),
      seek_indexes_(std::make_shared<ByteQuota>(options_.seek_index_bytes)) {
  TakeFolder();
  if (folder_.empty()) return;
  disk_->SetMakeRoom([this] { return DeleteUnusedSegment(); });
  // The quota may have been larger before.
  while (disk_->used() > disk_->limit() && DeleteUnusedSegment()) {
  }
}

Cache::~Cache() { disk_->SetMakeRoom(nullptr); }

void Cache::TakeFolder() {
  if (options_.disk_bytes <= 0 || options_.state_dir.empty()) {
    no_disk_ = "cache.disk is 0";
    return;
  }
  const std::string folder = absl::StrCat(options_.state_dir, "/cache");
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) {
    absl::StatusOr<ProcessLock> lock =
        ProcessLock::Take(absl::StrCat(folder, "/", kLockName), 0600);
    if (lock.ok()) {
      lock_ = *std::move(lock);
    } else if (absl::IsAlreadyExists(lock.status())) {
      no_disk_ = absl::StrCat(folder, " is used by another daemon (", lock.status().message(),
                              "); give each its own state_dir");
    } else {
      no_disk_ = absl::StrCat(folder, ": ", lock.status().message());
    }
  } else {
    no_disk_ = absl::StrCat(folder, ": ", error.message());
  }
  if (lock_) {
    folder_ = folder;
    std::vector<std::pair<fs::file_time_type, std::string>> found;
    ForeignEntries foreign(folder_);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
      const std::string name = entry.path().filename();
      if (entry.symlink_status(error).type() == fs::file_type::directory) {
        found.emplace_back(fs::last_write_time(entry.path(), error), name);
      } else if (!absl::StartsWith(name, kLockName)) {
        foreign.Add(name);
      }
    }
    std::sort(found.begin(), found.end());
    for (const auto& [touched, name] : found) {
      if (!AddUnused(name, std::nullopt)) foreign.Add(name);
    }
    foreign.Report();
    return;
  }
  spdlog::warn("nothing is cached on disk: {}", no_disk_);
}

absl::StatusOr<std::shared_ptr<RecordCache>> Cache::Get(const Request& request,
                                                        std::shared_ptr<MemoryBudget> share) {
  const std::string name = absl::StrCat(request.dataset, "-", request.form);
  std::list<Entry> idle;
  std::list<Entry>::iterator entry;
  Quotas quotas;
  {
    MutexLock lock(&mu_);
    for (bool has_reopened = false;;) {
      const auto is_it = [&](const Entry& known) { return known.name == name; };
      const auto found = std::find_if(entries_.begin(), entries_.end(), is_it);
      if (found != entries_.end() && found->cache != nullptr) {
        const bool is_idle = found->cache.use_count() == 1;
        const bool is_less = IsLess(*found->cache, request);
        if (is_idle && !is_less && !has_reopened && KeepsOnDisk(request) &&
            found->cache->has_lost_disk()) {
          has_reopened = true;
          // What its last user did happens before this: the count orders nothing, dropping a copy
          // does.
          std::shared_ptr<RecordCache>(found->cache).reset();
          ReopenDisk(found, share);
          continue;
        }
        if (!is_idle || !is_less) {
          entries_.splice(entries_.begin(), entries_, found);  // most recently used first
          found->cache->RaiseLimits(std::min(request.memory_bytes, memory_->limit()),
                                    request.disk_bytes);
          return found->cache;
        }
        std::list<Entry> less;
        closing_.insert(name);
        less.splice(less.end(), entries_, found);
        mu_.Unlock();
        Close(std::move(less));
        mu_.Lock();
        continue;
      }
      if (found == entries_.end() && !closing_.contains(name)) break;
      changed_.Wait(&mu_);  // somebody else opens or closes it
    }
    const auto unused =
        static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [](const Entry& known) {
          return known.cache.use_count() == 1;
        }));
    idle = TakeIdle(unused - std::min(unused, kMostIdle));
    quotas = QuotasOf(request.user);
    entry = entries_.insert(entries_.begin(), {name, request, nullptr});
    if (KeepsOnDisk(request)) UseFolder(name);
  }
  std::shared_ptr<RecordCache> cache;
  const absl::Status opened = NoThrow([&] {
    Close(std::move(idle));
    MakeRoom(request, quotas);
    FW_ASSIGN_OR_RETURN(cache, Open(name, request, quotas, std::move(share)));
    return absl::OkStatus();
  });
  MutexLock lock(&mu_);
  changed_.SignalAll();
  if (!opened.ok()) {
    entries_.erase(entry);
    return opened;
  }
  entry->cache = cache;
  return cache;
}

void Cache::ReopenDisk(std::list<Entry>::iterator entry,
                       const std::shared_ptr<MemoryBudget>& share) {
  std::list<Entry> alone;  // so that nobody else takes or closes it meanwhile
  closing_.insert(entry->name);
  alone.splice(alone.end(), entries_, entry);
  UseFolder(entry->name);
  mu_.Unlock();
  entry->cache->ReopenDisk(share != nullptr ? share : options_.budget);
  NoThrow([&] {
    if (entry->cache->disk() == nullptr) AddUnused(entry->name, entry->request.user);
    return absl::OkStatus();
  }).IgnoreError();
  mu_.Lock();
  closing_.erase(entry->name);
  entries_.splice(entries_.begin(), alone);
  changed_.SignalAll();
}

// The user's own first where its part is short, then of all users; one at a time.
void Cache::MakeRoom(const Request& request, const Quotas& quotas) {
  const auto left = [](const ByteQuota& quota) { return quota.limit() - quota.used(); };
  const int64_t most = std::min(request.memory_bytes, memory_->limit());
  if (most > 0) {
    const int64_t wanted = most + kTableEntry * request.records;
    const ByteQuota& mine = *quotas.memory;
    while (mine.used() > 0 && wanted > left(mine) && CloseIdle(request.user)) {
    }
    while (memory_->used() > 0 && std::min(wanted, left(mine)) > memory_->free() && CloseIdle()) {
    }
  }
  if (!KeepsOnDisk(request)) return;
  // What is closed leaves a folder that nobody uses, which goes when a record finds no room.
  const int64_t wanted = std::min(request.disk_bytes, disk_->limit());
  const ByteQuota& mine = *quotas.disk;
  while (mine.used() > 0 && wanted > left(mine) && CloseIdle(request.user, /*on_disk=*/true)) {
  }
  while (std::min(wanted, left(mine)) > left(*disk_) + UnusedBytes() &&
         CloseIdle(std::nullopt, /*on_disk=*/true)) {
  }
}

int64_t Cache::UnusedBytes() const {
  MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const UnusedFolder& folder : unused_) bytes += folder.bytes();
  return bytes;
}

int64_t Cache::memory_of_a_user() const {
  MutexLock lock(&mu_);
  return memory_->limit() / parts_;
}

void Cache::LimitUsers(int64_t parts) {
  MutexLock lock(&mu_);
  parts_ = parts;
  for (const auto& [user, quotas] : quotas_) {
    quotas.memory->SetLimit(memory_->limit() / parts);
    quotas.disk->SetLimit(disk_->limit() / parts);
    quotas.seek_indexes->SetLimit(seek_indexes_->limit() / parts);
  }
}

Cache::Quotas Cache::QuotasOf(uid_t user) {
  if (const auto known = quotas_.find(user); known != quotas_.end()) return known->second;
  std::erase_if(quotas_, [](const auto& other) {
    const Quotas& of = other.second;
    return of.memory.use_count() == 1 && of.disk.use_count() == 1 &&
           of.seek_indexes.use_count() == 1;
  });
  const auto part = [&](const std::shared_ptr<ByteQuota>& whole) {
    return std::make_shared<ByteQuota>(whole->limit() / parts_, whole);
  };
  return quotas_[user] = {part(memory_), part(disk_), part(seek_indexes_)};
}

bool Cache::CloseIdle(std::optional<uid_t> only, bool on_disk) {
  std::list<Entry> idle;
  {
    MutexLock lock(&mu_);
    idle = TakeIdle(1, only, on_disk);
  }
  const bool is_one = !idle.empty();
  Close(std::move(idle));
  return is_one;
}

bool Cache::IsLess(const RecordCache& cache, const Request& request) const {
  // What is in memory is not given up for a disk that did not work: that is opened alone.
  const bool is_without_disk =
      cache.has_lost_disk() ? cache.counts().memory_records == 0 : cache.disk() == nullptr;
  return (KeepsOnDisk(request) && is_without_disk) ||
         (std::min(request.memory_bytes, memory_->limit()) > 0 && !cache.has_memory());
}

bool Cache::KeepsOnDisk(const Request& request) const {
  return !folder_.empty() && request.disk_bytes > 0;
}

absl::StatusOr<std::shared_ptr<RecordCache>> Cache::Open(const std::string& name,
                                                         const Request& request,
                                                         const Quotas& quotas,
                                                         std::shared_ptr<MemoryBudget> share) {
  RecordCache::Options options;
  options.records = request.records;
  options.memory_limit = std::min(request.memory_bytes, memory_->limit());
  options.memory_quota = quotas.memory;
  options.budget = options_.budget;
  if (KeepsOnDisk(request)) {
    options.folder = absl::StrCat(folder_, "/", name);
    options.identity = name;
    options.disk_limit = request.disk_bytes;
    options.disk_quota = quotas.disk;
    options.disk_budget = share != nullptr ? share : options_.budget;
    options.saver = saver_;
  }
  absl::StatusOr<std::shared_ptr<RecordCache>> cache = RecordCache::Open(std::move(options));
  const bool uses_folder = cache.ok() && (*cache)->disk() != nullptr;
  if (KeepsOnDisk(request) && !uses_folder) AddUnused(name, request.user);  // its bytes still count
  return cache;
}

std::shared_ptr<SeekIndexStore> Cache::SeekIndexesOf(const std::string& dataset, uid_t user) {
  if (options_.seek_index_bytes <= 0) return nullptr;
  const std::string file = SeekIndexFile(options_.state_dir, dataset);
  std::error_code error;
  if (!file.empty()) fs::create_directories(fs::path(file).parent_path(), error);
  std::list<SeekEntry> idle;  // ends, and is saved, without the lock
  MutexLock lock(&mu_);
  const std::shared_ptr<ByteQuota> mine = QuotasOf(user).seek_indexes;
  for (auto it = seek_entries_.begin(); it != seek_entries_.end();) {
    if (it->file == file && !file.empty()) return it->store;
    const auto next = std::next(it);
    const bool is_short = seek_indexes_->used() > seek_indexes_->limit() / 2 ||
                          (it->quota == mine && mine->used() > mine->limit() / 2);
    if ((is_short || seek_entries_.size() >= kMostSeekStores) && it->store.use_count() == 1)
      idle.splice(idle.end(), seek_entries_, it);
    it = next;
  }
  SeekIndexStore::Options options;
  options.file = file;
  options.quota = mine;
  options.saver = saver_;
  options.budget = options_.budget;
  seek_entries_.push_back({file, std::make_shared<SeekIndexStore>(std::move(options)), mine});
  if (!file.empty()) DeleteUnusedSeekFiles(fs::path(file).parent_path());
  return seek_entries_.back().store;
}

// Of datasets that are not open, longest unwritten first, until all files take no more than twice
// what memory may hold.
void Cache::DeleteUnusedSeekFiles(const std::string& folder) {
  struct File {
    fs::file_time_type written;
    fs::path path;
    int64_t bytes;
  };
  std::vector<File> files;
  ForeignEntries foreign(absl::StrCat(folder, "/*.seek"));
  int64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    struct stat info;
    if (path.extension() != ".seek") continue;
    if (!IsKeyName(path.stem().native()) || !IsRegularFile(path, &info)) {
      foreign.Add(path.filename());
      continue;
    }
    bytes += info.st_size;
    const bool is_open =
        std::any_of(seek_entries_.begin(), seek_entries_.end(),
                    [&](const SeekEntry& known) { return known.file == path.string(); });
    if (is_open) continue;
    files.push_back({entry.last_write_time(error), path, info.st_size});
  }
  if (bytes <= 2 * seek_indexes_->limit()) return;
  std::erase_if(files, [&](const File& file) {  // only now: each is opened for it
    if (IsSeekIndexFile(file.path)) return false;
    bytes -= file.bytes;
    foreign.Add(file.path.filename());
    return true;
  });
  foreign.Report();
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.written < b.written; });
  for (const File& file : files) {
    if (bytes <= 2 * seek_indexes_->limit()) return;
    if (ClientLog().Admits("seek indexes deleted", LogLimiter::kNoSource))
      spdlog::info("seek indexes {}: deleted to make room", file.path.string());
    fs::remove(file.path, error);
    bytes -= file.bytes;
  }
}

std::list<Cache::Entry> Cache::TakeIdle(size_t most, std::optional<uid_t> only, bool on_disk) {
  std::list<Entry> idle;
  while (idle.size() < most) {
    std::map<uid_t, int> unused;  // by user
    auto taken = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const uid_t user = it->request.user;
      if (it->cache.use_count() != 1) continue;  // used, or being opened
      if (only && user != *only) continue;
      if (on_disk && it->cache->disk() == nullptr) continue;
      ++unused[user];
      // Most recently used first: the last one of the user stays.
      if (taken == entries_.end() || unused[user] >= unused[taken->request.user]) taken = it;
    }
    if (taken == entries_.end()) break;
    closing_.insert(taken->name);
    idle.splice(idle.end(), entries_, taken);
  }
  return idle;
}

void Cache::Close(std::list<Entry> idle) {
  for (Entry& entry : idle) {
    const bool on_disk = entry.cache->disk() != nullptr;
    entry.cache = nullptr;
    NoThrow([&] {
      if (on_disk) AddUnused(entry.name, entry.request.user);
      return absl::OkStatus();
    }).IgnoreError();
    MutexLock lock(&mu_);
    closing_.erase(entry.name);
    changed_.SignalAll();
  }
}

// Counts the folder of a cache that is not open against the quota. One without blocks goes at once:
// pipelines can name ever new datasets. False, and nothing happens: it is none of a cache.
bool Cache::AddUnused(const std::string& name, std::optional<uid_t> user) {
  const std::string path = absl::StrCat(folder_, "/", name);
  std::optional<std::vector<SegmentFile>> segments = FindSegments(path, name);
  if (!segments.has_value()) return false;
  if (segments->empty()) {
    RemoveCacheFolder(path);
    return true;
  }
  UnusedFolder folder;
  folder.name = name;
  folder.user = user;
  folder.segments = *std::move(segments);
  MutexLock lock(&mu_);
  for (const SegmentFile& segment : folder.segments) disk_->Force(segment.bytes);
  unused_.push_back(std::move(folder));
  return true;
}

// A cache opens the folder and counts its bytes from now on.
void Cache::UseFolder(const std::string& name) {
  unused_.remove_if([&](const UnusedFolder& folder) {
    if (folder.name != name) return false;
    for (const SegmentFile& segment : folder.segments) disk_->Give(segment.bytes);
    return true;
  });
}

// Makes room on disk: the last segment of the folder that is longest unused, of the user who has
// most in such folders, and the folder itself with its last one. What is left of a folder can still
// be used: its journal then names blocks that are not there (disk_tier.h). One segment at a time,
// because a worker waits for it.
bool Cache::DeleteUnusedSegment() {
  MutexLock lock(&mu_);
  if (unused_.empty()) return false;
  std::map<std::optional<uid_t>, int64_t> bytes;
  for (const UnusedFolder& folder : unused_) bytes[folder.user] += folder.bytes();
  for (auto& [user, sum] : bytes) {  // and what the user has in use
    const auto quotas = user ? quotas_.find(*user) : quotas_.end();
    if (quotas != quotas_.end()) sum += quotas->second.disk->used();
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest = std::find_if(unused_.begin(), unused_.end(), [&](const UnusedFolder& folder) {
    return folder.user == most->first;
  });
  UnusedFolder& folder = *oldest;
  const std::string path = absl::StrCat(folder_, "/", folder.name);
  if (!folder.segments.empty()) {
    const SegmentFile segment = folder.segments.back();
    folder.segments.pop_back();
    RemoveSegment(absl::StrCat(path, "/", segment.name));
    disk_->Give(segment.bytes);
  }
  if (folder.segments.empty()) {
    if (ClientLog().Admits("caches deleted", LogLimiter::kNoSource))
      spdlog::info("cache {}: deleted to make room", path);
    RemoveCacheFolder(path);
    unused_.erase(oldest);
  }
  return true;
}

std::vector<Cache::Status> Cache::Statuses() const {
  MutexLock lock(&mu_);
  std::vector<Status> statuses;
  for (const Entry& entry : entries_) {
    if (entry.cache == nullptr) continue;  // being opened
    statuses.push_back(
        {entry.request.dataset, entry.request.form, entry.request.records, entry.cache->counts()});
  }
  return statuses;
}

}  // namespace feedwater::server
