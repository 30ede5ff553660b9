#include "server/cache/cache.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

int64_t FolderBytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const uintmax_t size = entry.file_size(error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

Cache::Cache(Options options)
    : options_(std::move(options)),
      memory_(std::make_shared<ByteQuota>(options_.memory_bytes)),
      disk_(std::make_shared<ByteQuota>(options_.disk_bytes)) {
  TakeFolder();
}

Cache::~Cache() = default;

void Cache::TakeFolder() {
  if (options_.disk_bytes <= 0 || options_.state_dir.empty()) {
    no_disk_ = "cache.disk is 0";
    return;
  }
  const std::string folder = absl::StrCat(options_.state_dir, "/cache");
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) {
    lock_ = Fd(open(absl::StrCat(folder, "/lock").c_str(),
                    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_) error = std::error_code(errno, std::generic_category());
  }
  if (error) {
    no_disk_ = absl::StrCat(folder, ": ", error.message());
  } else if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    no_disk_ = absl::StrCat(folder, " is used by another daemon; give each its own state_dir");
  } else {
    folder_ = folder;
    return;
  }
  spdlog::warn("nothing is cached on disk: {}", no_disk_);
}

absl::StatusOr<std::shared_ptr<RecordCache>> Cache::Get(const Request& request) {
  const std::string name = absl::StrCat(request.dataset, "-", request.form);
  MutexLock lock(&mu_);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->name != name) continue;
    entries_.splice(entries_.begin(), entries_, it);  // most recently used first
    return it->cache;
  }
  if (memory_->used() > 0 && request.memory_bytes > memory_->limit() - memory_->used()) CloseIdle();
  RecordCache::Options options;
  options.records = request.records;
  options.memory_limit = std::min(request.memory_bytes, memory_->limit());
  options.memory_quota = memory_;
  options.budget = options_.budget;
  if (!folder_.empty() && request.disk_bytes > 0) {
    DeleteUnusedFolders(name, std::min(request.disk_bytes, disk_->limit()));
    options.folder = absl::StrCat(folder_, "/", name);
    options.identity = name;
    options.disk_quota = disk_;
  }
  FW_ASSIGN_OR_RETURN(std::shared_ptr<RecordCache> cache, RecordCache::Open(std::move(options)));
  entries_.push_front({name, request, cache});
  return cache;
}

void Cache::CloseIdle() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    it = it->cache.use_count() == 1 ? entries_.erase(it) : std::next(it);
  }
}

// Folders of caches that are not open, longest untouched first, until the disk has `wanted_bytes`
// beside what stands in `but`.
void Cache::DeleteUnusedFolders(const std::string& but, int64_t wanted_bytes) {
  struct Folder {
    fs::file_time_type touched;
    fs::path path;
    int64_t bytes;
  };
  std::vector<Folder> folders;
  int64_t unused_bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (!entry.is_directory(error)) continue;
    const std::string name = entry.path().filename().string();
    const bool open = std::any_of(entries_.begin(), entries_.end(),
                                  [&](const Entry& known) { return known.name == name; });
    if (open || name == but) continue;
    folders.push_back(
        {fs::last_write_time(entry.path(), error), entry.path(), FolderBytes(entry.path())});
    unused_bytes += folders.back().bytes;
  }
  std::sort(folders.begin(), folders.end(),
            [](const Folder& a, const Folder& b) { return a.touched < b.touched; });
  for (const Folder& folder : folders) {
    if (disk_->used() + unused_bytes + wanted_bytes <= disk_->limit()) return;
    spdlog::info("cache {}: deleted to make room", folder.path.string());
    fs::remove_all(folder.path, error);
    unused_bytes -= folder.bytes;
  }
}

std::vector<Cache::Status> Cache::Statuses() const {
  MutexLock lock(&mu_);
  std::vector<Status> statuses;
  for (const Entry& entry : entries_) {
    statuses.push_back(
        {entry.request.dataset, entry.request.form, entry.request.records, entry.cache->counts()});
  }
  return statuses;
}

}  // namespace feedwater::server
