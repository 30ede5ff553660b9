// All folders of unpacked files together: their room, and what is dropped for it.
#include "server/source/staging.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/base/own_files.h"
#include "server/base/units.h"
#include "server/source/seal.h"
#include "server/source/staged_locks.h"
#include "server/storage/fault.h"
#include "server/storage/stat_now.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 20;  // of a folder that somebody else is just removing
constexpr std::chrono::milliseconds kShortPause(1);  // while another one counts
constexpr char kCount[] = ".used";                   // bytes of all unpacked files, as an int64_t
constexpr absl::string_view kGone = ".gone-";        // before the inode of what is being removed
constexpr size_t kMadeFrom = 32;                     // of a file's name, before its own

// The name of the file that an entry of a folder is the seal of (SealPath).
std::optional<absl::string_view> SealedName(absl::string_view entry) {
  if (!absl::ConsumePrefix(&entry, ".") || !absl::ConsumeSuffix(&entry, ".seal"))
    return std::nullopt;
  return entry;
}

// Whether StagedFolder gives such names: KEY-NAME, and for it .KEY-NAME.new, .KEY-NAME.seal and
// ..KEY-NAME.seal.new.
bool IsOwnName(absl::string_view entry) {
  while (absl::ConsumePrefix(&entry, ".")) {
    if (!absl::ConsumeSuffix(&entry, ".new") && !absl::ConsumeSuffix(&entry, ".seal")) return false;
  }
  return IsKeyName(entry.substr(0, kMadeFrom)) &&
         absl::StartsWith(entry.substr(std::min(entry.size(), kMadeFrom)), "-");
}

bool IsGoneName(absl::string_view entry) {
  return absl::ConsumePrefix(&entry, kGone) && !entry.empty() &&
         entry.find_first_not_of("0123456789") == absl::string_view::npos;
}

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error))
    entries.push_back(entry->path());
  return entries;
}

// Of a dataset's folder: what was unpacked, with what belongs to it. Anything else there is not
// ours.
std::vector<fs::path> OwnFilesOf(const fs::path& folder) {
  std::vector<fs::path> files = EntriesOf(folder);
  std::erase_if(files, [](const fs::path& file) {
    return !IsOwnName(file.filename().native()) || !IsRegularFile(file);
  });
  return files;
}

int64_t BytesOf(const fs::path& folder) {
  int64_t bytes = 0;
  for (const fs::path& file : OwnFilesOf(folder)) {
    struct stat info;
    if (!SealedName(file.filename().native()).has_value() && IsRegularFile(file, &info))
      bytes += info.st_size;
  }
  return bytes;
}

// Whether the entry of the area is a dataset's folder: others may keep things there, too. One that
// was only just made, or by a process that was killed then, has no kHeld.
bool IsOwnFolder(const fs::path& path) {
  struct stat info;
  return IsKeyName(path.filename().native()) && lstat(path.c_str(), &info) == 0 &&
         S_ISDIR(info.st_mode) &&
         (IsRegularFile(path / kHeld) || OwnFilesOf(path).size() == EntriesOf(path).size());
}

// Whether what is open still stands at the path.
bool IsAt(int fd, const std::string& path) {
  struct stat held, there;
  return fstat(fd, &held) == 0 && stat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

// Whoever opens datasets can cause it.
void WarnOf(const absl::Status& failed) {
  if (ClientLog().Admits("unpacked files that cannot be removed", LogLimiter::kNoSource))
    spdlog::warn("{}", std::string(failed.message()));
}

void RemoveFile(const fs::path& file) {
  const absl::Status removed = RemoveOwnFile(file);
  if (!removed.ok() && !absl::IsNotFound(removed)) WarnOf(removed);
}

// Gives the disk back at once, also of files that somebody has open still. Another process may be
// at it too. REQUIRES: the name of the folder or file says that it is gone, so nobody takes what is
// left of a file for the whole.
void RemoveGone(const fs::path& gone) {
  struct stat info;
  if (lstat(gone.c_str(), &info) != 0) return;
  if (!S_ISDIR(info.st_mode)) return RemoveFile(gone);
  for (const fs::path& file : OwnFilesOf(gone)) RemoveFile(file);
  RemoveFile(gone / kHeld);
  if (rmdir(gone.c_str()) != 0 && errno != ENOENT) WarnOf(ErrnoStatus(errno, gone.string()));
}

// The name of the file that an entry of a folder is going to be; nothing: it is no unfinished one.
std::optional<absl::string_view> UnfinishedName(absl::string_view entry) {
  if (!absl::ConsumePrefix(&entry, ".") || !absl::ConsumeSuffix(&entry, ".new"))
    return std::nullopt;
  return entry;
}

// Removes what killed processes had begun to unpack, and nobody goes on with, and seals of nothing.
void RemoveUnfinished(const fs::path& folder) {
  for (const fs::path& path : OwnFilesOf(folder)) {
    const std::string name = path.filename();
    std::error_code error;
    // In this order: the one becomes the other.
    if (const auto sealed = SealedName(name);
        sealed.has_value() && !fs::exists(folder / absl::StrCat(".", *sealed, ".new"), error) &&
        !fs::exists(folder / std::string(*sealed), error))
      unlink(path.c_str());
    if (!UnfinishedName(path.filename().native()).has_value()) continue;
    const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    // Whoever writes it holds it (base/atomic_file.h), and makes it anew where it has gone.
    if (file && flock(file.get(), LOCK_EX | LOCK_NB) == 0 && IsAt(file.get(), path))
      unlink(path.c_str());
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StagedFolder>> StagingArea::Open(const std::string& dataset,
                                                                      bool reads_all) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("creating ", folder_, " for unpacked files: ", error.message()));
  }
  FinishRemovals();
  const std::string path = absl::StrCat(folder_, "/", dataset);
  for (int i = 0; i < kTries; ++i) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return StorageError(errno, path);
    Fd lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock) {
      if (errno == ENOENT) continue;
      return StorageError(errno, path);
    }
    if (flock(lock.get(), LOCK_SH) != 0) return StorageError(errno, path);
    if (!IsAt(lock.get(), path)) continue;  // it was removed between the two
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    futimens(lock.get(), now);  // the time of its last use
    Fd directory(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory) return StorageError(errno, path);
    const std::string held_file = absl::StrCat(path, "/", kHeld);
    Fd held(open(held_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!held) return StorageError(errno, held_file);
    auto root = std::make_shared<const Root>("staged", path, std::move(directory));
    return std::shared_ptr<const StagedFolder>(
        new StagedFolder(this, path, std::move(root), std::move(lock), std::move(held), reads_all));
  }
  return absl::UnavailableError(absl::StrCat(path, " is being removed"));
}

absl::Status StagingArea::Take(int64_t more, int fd, const std::function<absl::Status()>& goes_on) {
  // Opened for each: the lock is between threads, too.
  const std::string path = absl::StrCat(folder_, "/", kCount);
  const Fd count(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!count) return StorageError(errno, path);
  while (flock(count.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return StorageError(errno, path);
    FW_RETURN_IF_ERROR(goes_on());  // whoever holds it may be stopped
    std::this_thread::sleep_for(kShortPause);
  }
  int64_t used = 0;
  const bool is_known = has_counted_ && pread(count.get(), &used, sizeof(used), 0) == sizeof(used);
  if (!is_known || used < 0 || used > limit_bytes_ - more) used = DropOldest(limit_bytes_ - more);
  has_counted_ = true;
  if (used > limit_bytes_ - more) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "unpacked files would take more than stage.disk = ", FormatBytes(limit_bytes_), " in ",
        folder_,
        ", and all that is there is in use; cure: a larger stage.disk, or unpack the files "
        "yourself"));
  }
  if (FreeBytes() < more) {
    // What was taken for files that were given up is still in the count.
    used = DropOldest(INT64_MAX);
    used = DropOldest(std::max<int64_t>(used - more, 0));
  }
  if (FreeBytes() < more) {
    if (pwrite(count.get(), &used, sizeof(used), 0) != sizeof(used))
      return StorageError(errno, path);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the file system of ", folder_,
        " has no room for unpacked files: a twentieth of it, 1 GiB at most, "
        "stays free; cure: a state_dir on a larger one, or unpack the files yourself"));
  }
  // The count first: one that is too high is put right when it passes the limit. The file is as
  // long as what was taken for it, so that whoever counts the files counts that.
  used += more;
  struct stat info;
  if (pwrite(count.get(), &used, sizeof(used), 0) != sizeof(used) || fstat(fd, &info) != 0 ||
      ftruncate(fd, info.st_size + more) != 0)
    return StorageError(errno, path);
  return absl::OkStatus();
}

// Of the file system, but for what stays free.
int64_t StagingArea::FreeBytes() const {
  constexpr uint64_t kPart = 20, kMost = 1 << 30;  // one part in so many, and at most so many bytes
  struct statvfs info;
  if (statvfs(folder_.c_str(), &info) != 0 || info.f_frsize == 0) return INT64_MAX;
  const uint64_t kept = std::min<uint64_t>(info.f_blocks / kPart, kMost / info.f_frsize);
  const uint64_t free = info.f_bavail > kept ? info.f_bavail - kept : 0;
  return static_cast<int64_t>(std::min<uint64_t>(free * info.f_frsize, INT64_MAX));
}

int64_t StagingArea::DropOldest(int64_t at_most) const {
  struct Folder {
    fs::path path;
    int64_t used_ns;
    int64_t bytes;
  };
  FinishRemovals();
  std::vector<Folder> folders;
  ForeignEntries foreign(folder_);
  int64_t bytes = 0;
  for (const fs::path& path : EntriesOf(folder_)) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) continue;
    if (!IsOwnFolder(path)) {
      const std::string name = path.filename();
      if (name != kCount && !IsGoneName(name)) foreign.Add(name);
      continue;
    }
    RemoveUnfinished(path);
    folders.push_back({path, Nanoseconds(info.st_mtim), BytesOf(path)});
    bytes += folders.back().bytes;
  }
  foreign.Report();
  std::sort(folders.begin(), folders.end(),
            [](const Folder& a, const Folder& b) { return a.used_ns < b.used_ns; });
  for (Folder& folder : folders) {
    if (bytes <= at_most) break;
    const int64_t dropped = DropUnread(folder.path, bytes - at_most);
    folder.bytes -= dropped;
    bytes -= dropped;
  }
  for (const Folder& oldest : folders) {
    if (bytes <= at_most) break;
    if (!Drop(oldest.path)) continue;
    bytes -= oldest.bytes;
    if (ClientLog().Admits("unpacked datasets removed", LogLimiter::kNoSource)) {
      spdlog::info("unpacked files of a dataset removed for want of room: {}",
                   FormatBytes(oldest.bytes));
    }
  }
  return bytes;
}

bool StagingArea::Drop(const std::string& path) const {
  const Fd lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;  // somebody reads from it
  // What stands there may have been removed and made again meanwhile: that one is not locked.
  if (!IsAt(lock.get(), path)) return false;
  std::vector<fs::path> all = {path};
  const std::vector<fs::path> own = OwnFilesOf(path);
  const size_t held = IsRegularFile(absl::StrCat(path, "/", kHeld)) ? 1 : 0;
  // What is not ours keeps its folder.
  if (EntriesOf(path).size() != own.size() + held) all = own;
  for (const fs::path& one : all) {
    const std::string gone = SetAside(one, one.parent_path());
    if (gone.empty()) return false;
    RemoveGone(gone);
  }
  return true;
}

int64_t StagingArea::DropUnread(const std::string& path, int64_t wanted) const {
  const Fd held(open(absl::StrCat(path, "/", kHeld).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!held || !IsRead(held.get())) return 0;  // then the folder goes as a whole, in its turn
  struct Unread {
    std::string name, own_name;
    int64_t bytes, made_ns;
    bool is_superseded = false;
  };
  const auto own_name = [](absl::string_view name) {
    return std::string(name.substr(std::min(name.size(), kMadeFrom)));
  };
  std::vector<Unread> unread;
  absl::flat_hash_set<std::string> read;  // by their own names, also those that are being made
  for (const fs::path& entry : OwnFilesOf(path)) {
    const std::string name = entry.filename().string();
    struct stat info;
    if (const auto unfinished = UnfinishedName(name); unfinished.has_value()) {
      read.insert(own_name(*unfinished));
    } else if (name[0] == '.' || lstat(entry.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    } else if (LockByte(held.get(), name, F_WRLCK)) {
      LockByte(held.get(), name, F_UNLCK);
      unread.push_back({name, own_name(name), info.st_size, Nanoseconds(info.st_mtim)});
    } else {
      read.insert(own_name(name));
    }
  }
  // First those that another version of the same file has taken the place of: an opening may be
  // about to read the others.
  for (Unread& file : unread) file.is_superseded = read.contains(file.own_name);
  std::sort(unread.begin(), unread.end(), [](const Unread& a, const Unread& b) {
    return std::make_tuple(!a.is_superseded, a.made_ns) <
           std::make_tuple(!b.is_superseded, b.made_ns);
  });
  int64_t dropped = 0;
  for (const Unread& file : unread) {
    if (dropped >= wanted) break;
    if (!LockByte(held.get(), file.name, F_WRLCK)) continue;  // somebody reads it by now
    const std::string gone = SetAside(absl::StrCat(path, "/", file.name), path);
    LockByte(held.get(), file.name, F_UNLCK);
    if (gone.empty()) continue;
    unlink(SealPath(absl::StrCat(path, "/", file.name)).c_str());
    RemoveGone(gone);
    dropped += file.bytes;
  }
  if (dropped > 0 && ClientLog().Admits("unpacked files removed", LogLimiter::kNoSource)) {
    spdlog::info("unpacked files that nobody reads removed for want of room: {}",
                 FormatBytes(dropped));
  }
  return dropped;
}

// Under its own name, a file that is cut short would be taken for a whole one after a kill. The
// inode is nobody else's as long as what has it is there.
std::string StagingArea::SetAside(const std::string& path, const std::string& folder) const {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return "";
  const std::string gone = absl::StrCat(folder_, "/", kGone, info.st_ino);
  if (rename(path.c_str(), gone.c_str()) != 0) {
    WarnOf(ErrnoStatus(errno, path));
    return "";
  }
  for (const std::string& changed : {folder, folder_}) {  // after a power cut, too
    const Fd parent(open(changed.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent) fsync(parent.get());
  }
  return gone;
}

void StagingArea::FinishRemovals() const {
  for (const fs::path& path : EntriesOf(folder_)) {
    if (IsGoneName(path.filename().native())) RemoveGone(path);
  }
}

}  // namespace feedwater::server
