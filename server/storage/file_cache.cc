// FileCache: open files in the order of their last use. The mutex is never held during open(2) or
// close(2).
#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/storage/engine.h"
#include "server/storage/fault.h"
#include "server/storage/mounts.h"
#include "server/storage/stat_now.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

using FilePtr = std::shared_ptr<const OpenedFile>;
using Key = std::pair<uint64_t, std::string>;  // Root::id, path below it

// close(2) of a file of a network or a program waits for it as read(2) does.
class Closing final : public StorageCall {
 public:
  Closing(std::unique_ptr<OpenedFile> file, std::shared_ptr<std::atomic<size_t>> open)
      : file_(std::move(file)), open_(std::move(open)) {}
  ~Closing() override { Run(); }
  void Run() override {
    if (file_ == nullptr) return;
    file_.reset();
    open_->fetch_sub(1);
  }

 private:
  std::unique_ptr<OpenedFile> file_;
  const std::shared_ptr<std::atomic<size_t>> open_;
};

// Every write moves it, and unlike the modification time nobody can set it.
int64_t ChangedNs(const struct stat& info) {
  return int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
}

}  // namespace

struct FileCache::State {
  struct Entry {
    Key key;
    FilePtr file;
    int64_t looked_ns = 0;  // it was as it was opened then, or later
  };
  using Entries = std::list<Entry>;

  State(size_t limit, bool direct_io, std::shared_ptr<StorageCalls> calls)
      : limit(limit < 1 ? 1 : limit), direct_io(direct_io), calls(std::move(calls)) {}

  absl::StatusOr<FilePtr> OpenUncached(const Root& root, absl::string_view path, Reach reach,
                                       uint32_t user);
  // Takes files that nobody reads out of the cache, oldest first, until at most `keep` are left.
  // The caller drops them after unlocking.
  std::vector<FilePtr> Evict(size_t keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What the cache has of a path, and whether that was looked at since `not_before`.
  std::pair<FilePtr, bool> Find(const Key& key, int64_t not_before) ABSL_LOCKS_EXCLUDED(mu);
  // What a look at the path gave, which was begun at `now_ns`: `file` is so still, or is no more
  // what stands there.
  void Looked(const Key& key, const FilePtr& file, bool is_same, int64_t now_ns)
      ABSL_LOCKS_EXCLUDED(mu);

  const size_t limit;
  const bool direct_io;
  const std::shared_ptr<StorageCalls> calls;
  // Files that exist, in the cache or only in the hands of readers. Shared with the files, which
  // may outlive the cache.
  const std::shared_ptr<std::atomic<size_t>> open = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<bool> told_buffered{false};

  Mutex mu;
  Entries entries ABSL_GUARDED_BY(mu);  // most recently used first
  absl::flat_hash_map<Key, Entries::iterator> by_key ABSL_GUARDED_BY(mu);
};

absl::StatusOr<FilePtr> FileCache::State::OpenUncached(const Root& root, absl::string_view path,
                                                       Reach reach, uint32_t user) {
  FW_ASSIGN_OR_RETURN(Fd fd, root.OpenFile(path, direct_io, reach));
  const bool is_local = reach == Reach::kLocal || IsLocalMount(fd.get());
  struct stat info;
  if (StatNow(fd.get(), &info) != 0) return StorageError(errno, root.Describe(path));
  const int flags = direct_io ? fcntl(fd.get(), F_GETFL) : 0;
  const bool is_direct = flags > 0 && (flags & O_DIRECT) != 0;
  if (direct_io && !is_direct && !told_buffered.exchange(true)) {
    spdlog::warn(
        "direct I/O is refused by the file system of {}: reading through the page cache there",
        root.Describe(path));
  }
  auto* file = new OpenedFile;
  file->fd = std::move(fd);
  file->size = info.st_size;
  file->stamp = FileStamp(info);
  file->inode = info.st_ino;
  file->modified_ns = Nanoseconds(info.st_mtim);
  file->changed_ns = ChangedNs(info);
  file->direct_io = is_direct;
  file->is_local = is_local;
  file->user = user;
  file->path = absl::StrCat(root.path(), "/", path);
  open->fetch_add(1);
  return FilePtr(file, [open = open, calls = is_local ? nullptr : calls](OpenedFile* closed) {
    std::unique_ptr<OpenedFile> owned(closed);
    if (calls == nullptr) {
      owned.reset();
      open->fetch_sub(1);
    } else {
      const uint32_t user = owned->user;
      calls->Start(user, std::make_shared<Closing>(std::move(owned), open));
    }
  });
}

std::vector<FilePtr> FileCache::State::Evict(size_t keep) {
  std::vector<FilePtr> evicted;
  auto it = entries.end();
  while (entries.size() > keep && it != entries.begin()) {
    --it;
    if (it->file.use_count() > 1) continue;  // being read; copies are only made under mu
    evicted.push_back(std::move(it->file));
    by_key.erase(it->key);
    it = entries.erase(it);
  }
  return evicted;
}

std::pair<FilePtr, bool> FileCache::State::Find(const Key& key, int64_t not_before) {
  MutexLock lock(&mu);
  auto found = by_key.find(key);
  if (found == by_key.end()) return {nullptr, false};
  entries.splice(entries.begin(), entries, found->second);
  return {found->second->file, found->second->looked_ns >= not_before};
}

void FileCache::State::Looked(const Key& key, const FilePtr& file, bool is_same, int64_t now_ns) {
  FilePtr dropped;  // closed without the lock
  MutexLock lock(&mu);
  auto found = by_key.find(key);
  if (found == by_key.end() || found->second->file != file) return;
  if (is_same) {
    found->second->looked_ns = std::max(found->second->looked_ns, now_ns);
    return;
  }
  dropped = std::move(found->second->file);
  entries.erase(found->second);
  by_key.erase(found);
}

absl::Status FileHasChanged(absl::string_view message) {
  return FileChangedError(
      absl::StrCat(message,
                   "; a job goes on only with the files that it began with. Open a new loader, or "
                   "run the command again: it takes them as they are now"));
}

absl::Status ProveUnchanged(const OpenedFile& file) {
  struct stat info;
  if (StatNow(file.fd.get(), &info) != 0) return StorageError(errno, file.path);
  if (FileStamp(info) == file.stamp) return absl::OkStatus();
  return FileHasChanged(absl::StrCat(file.path, " has changed while it was being read"));
}

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kServerClockNs = 2 * kSecondNs;    // that of a file server may be behind
constexpr int64_t kMostOfAWrite = int64_t{2} << 30;  // Linux moves no more in one call
constexpr int64_t kSlowWriteBytesPerSecond = 20'000'000;

// ext3, ext4 with small inodes and FAT have whole seconds, or two.
int64_t TickNs(int64_t changed_ns) {
  return changed_ns % kSecondNs == 0 ? 2 * kSecondNs + kFileTimeTickNs : kFileTimeTickNs;
}

// What a write of so many bytes takes.
int64_t WriteNs(int64_t bytes) {
  return std::min(bytes, kMostOfAWrite) * (kSecondNs / 1000) / (kSlowWriteBytesPerSecond / 1000);
}

// `after_ns`: how long after its last change.
bool IsAfter(int64_t after_ns, int64_t changed_ns, bool is_local) {
  const int64_t age_ns = ClockNs(CLOCK_REALTIME) - changed_ns;
  // Of another clock, which is ahead of ours: it cannot be told. Our own was set back.
  if (age_ns < 0) return is_local;
  return age_ns >= after_ns;
}

}  // namespace

bool WouldShowChanges(const struct stat& info, bool is_local) {
  return IsAfter(TickNs(ChangedNs(info)), ChangedNs(info), is_local);
}

int64_t LastWriteEndsNs(int64_t bytes, int64_t changed_ns) { return changed_ns + WriteNs(bytes); }

int64_t UnsettledUntilNs(const struct stat& info) {
  const int64_t now_ns = ClockNs(CLOCK_REALTIME);
  const int64_t ends_ns = LastWriteEndsNs(info.st_size, ChangedNs(info));
  return S_ISREG(info.st_mode) && ChangedNs(info) <= now_ns && ends_ns > now_ns ? ends_ns : 0;
}

bool IsSettled(const OpenedFile& file) {
  const int64_t write_ns = WriteNs(file.size);
  const int64_t tick_ns = TickNs(file.changed_ns);
  return IsAfter(write_ns + (file.is_local ? tick_ns : std::max(tick_ns, kServerClockNs)),
                 file.changed_ns, file.is_local);
}

void AwaitClockTick(const struct stat& info) {
  const int64_t age_ns = ClockNs(CLOCK_REALTIME) - ChangedNs(info);
  const int64_t write_ns = S_ISREG(info.st_mode) ? WriteNs(info.st_size) : 0;
  const int64_t settles_ns =
      std::max(TickNs(ChangedNs(info)), write_ns <= kSecondNs ? write_ns : 0);
  if (age_ns >= 0 && age_ns < settles_ns)
    std::this_thread::sleep_for(std::chrono::nanoseconds(settles_ns - age_ns));
}

uint64_t FileStamp(const struct stat& info) {
  const uint64_t parts[] = {
      static_cast<uint64_t>(info.st_dev),          static_cast<uint64_t>(info.st_ino),
      static_cast<uint64_t>(info.st_size),         static_cast<uint64_t>(info.st_mtim.tv_sec),
      static_cast<uint64_t>(info.st_mtim.tv_nsec), static_cast<uint64_t>(info.st_ctim.tv_sec),
      static_cast<uint64_t>(info.st_ctim.tv_nsec)};
  return XXH3_64bits(parts, sizeof(parts)) | 1;  // 0 stands for "not known"
}

FileCache::FileCache(size_t limit, bool direct_io, std::shared_ptr<StorageCalls> calls)
    : state_(std::make_unique<State>(limit, direct_io, std::move(calls))) {}
FileCache::~FileCache() = default;

bool FileCache::direct_io() const { return state_->direct_io; }

absl::StatusOr<FileCache::Facts> FileCache::Look(const Root& root, absl::string_view relative_path,
                                                 Reach reach, int64_t not_before) {
  const Key key(root.id(), std::string(relative_path));
  const auto [known, is_fresh] = state_->Find(key, not_before);
  if (is_fresh) {
    return Facts{known->size,        known->stamp,      known->inode,
                 known->modified_ns, known->changed_ns, true};
  }
  const int64_t now_ns = MonotonicNs();
  const absl::StatusOr<struct stat> info = root.Stat(relative_path, reach);
  if (IsElsewhere(info.status())) return info.status();
  const bool is_same = info.ok() && known != nullptr && FileStamp(*info) == known->stamp;
  if (known != nullptr) state_->Looked(key, known, is_same, now_ns);
  if (!info.ok()) return info.status();
  return Facts{info->st_size,    FileStamp(*info),
               info->st_ino,     Nanoseconds(info->st_mtim),
               ChangedNs(*info), S_ISREG(info->st_mode) != 0};
}

absl::StatusOr<FilePtr> FileCache::Open(const Root& root, absl::string_view relative_path,
                                        Reach reach, uint32_t user, int64_t not_before) {
  const Key key(root.id(), std::string(relative_path));
  {
    const auto [known, is_fresh] = state_->Find(key, not_before);
    if (is_fresh) return known;
    if (known != nullptr) {
      const absl::StatusOr<Facts> now = Look(root, relative_path, reach, not_before);
      if (IsElsewhere(now.status())) return now.status();
      if (now.ok() && now->stamp == known->stamp) return known;
    }
  }
  const int64_t now_ns = MonotonicNs();
  absl::StatusOr<FilePtr> file = state_->OpenUncached(root, relative_path, reach, user);
  if (absl::IsResourceExhausted(
          file.status())) {  // EMFILE or ENFILE: the cache gives its files up first
    std::vector<FilePtr> evicted;
    {
      MutexLock lock(&state_->mu);
      evicted = state_->Evict(0);
    }
    if (!evicted.empty()) {
      evicted.clear();
      file = state_->OpenUncached(root, relative_path, reach, user);
    }
  }
  if (!file.ok()) return file.status();

  std::vector<FilePtr> evicted;
  MutexLock lock(&state_->mu);
  auto found = state_->by_key.find(key);
  if (found != state_->by_key.end()) {  // another thread opened it meanwhile
    if (found->second->looked_ns >= not_before) return found->second->file;
    evicted.push_back(std::exchange(found->second->file, *file));
    found->second->looked_ns = now_ns;
    return file;
  }
  evicted = state_->Evict(state_->limit - 1);
  if (state_->entries.size() <
      state_->limit) {  // else every file is being read: this one closes after use
    state_->entries.push_front({key, *file, now_ns});
    state_->by_key.emplace(key, state_->entries.begin());
  }
  return file;
}

void FileCache::Forget(const Root& root, absl::string_view relative_path) {
  FilePtr dropped;  // closed without the lock
  MutexLock lock(&state_->mu);
  const auto found = state_->by_key.find(Key(root.id(), std::string(relative_path)));
  if (found == state_->by_key.end()) return;
  dropped = std::move(found->second->file);
  state_->entries.erase(found->second);
  state_->by_key.erase(found);
}

size_t FileCache::open_files() const { return state_->open->load(); }

}  // namespace feedwater::server
