#include "server/service/runtime_dir.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr char kLockName[] = "feedwaterd.lock";

bool EverybodyMayWrite(const struct stat& info) { return (info.st_mode & S_IWOTH) != 0; }

// A file that has the group already is left alone: feedwaterd@.service makes its sockets in the
// right group, and its filter refuses chown.
bool GiveToGroup(const std::string& path, gid_t group) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT;
  return info.st_gid == group || lchown(path.c_str(), static_cast<uid_t>(-1), group) == 0;
}

// Whether the lock at the path is this process's. Where a cleaner of /tmp took it, another daemon
// may have come.
bool IsOwnLock(const std::string& path) {
  std::ifstream file(path);
  long long pid = 0, start = -1;
  return (file >> pid >> start) && pid == getpid() && start == ProcessStart();
}

}  // namespace

absl::Status MakeFolder(const std::string& path) {
  if (path.empty() || path[0] != '/')
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not an absolute path"));
  bool parent_is_public = false;
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    std::string part = path.substr(0, end);
    bool last = end == std::string::npos;
    // In a folder that everybody may write to, only a folder of our own is safe: its sockets could
    // be replaced otherwise.
    mode_t mode = parent_is_public ? 0700 : last ? 0750 : 0755;
    bool made = mkdir(part.c_str(), mode) == 0;
    if (!made && errno != EEXIST && errno != EROFS)
      return ErrnoStatus(errno, absl::StrCat("cannot make the folder ", part));
    if (made) (void)!chmod(part.c_str(), mode);  // whatever the umask
    struct stat info;
    int looked = parent_is_public ? lstat(part.c_str(), &info) : stat(part.c_str(), &info);
    if (looked != 0) return ErrnoStatus(errno, absl::StrCat("cannot look at the folder ", part));
    if (!S_ISDIR(info.st_mode))
      return absl::FailedPreconditionError(absl::StrCat(part, " is not a folder"));
    if (parent_is_public && info.st_uid != geteuid() && info.st_uid != 0) {
      return absl::PermissionDeniedError(
          absl::StrCat(part, " belongs to user ", info.st_uid,
                       " and stands where everybody may write; choose another folder"));
    }
    if (parent_is_public && (info.st_mode & 022) != 0 && !(info.st_mode & S_ISVTX)) {
      return absl::PermissionDeniedError(
          absl::StrCat(part, " may be changed by other users; cure: chmod 700 ", part));
    }
    parent_is_public = EverybodyMayWrite(info) && (info.st_mode & S_ISVTX) != 0;
    if (last) return absl::OkStatus();
  }
}

// The lock goes last: whoever finds none takes what is left for that of a daemon that was killed,
// and may remove it, too.
void RemoveRuntimeDir(const std::string& path, const std::vector<std::string>& files) {
  if (!IsOwnLock(absl::StrCat(path, "/", kLockName))) return;
  for (const std::string& file : files) (void)unlink(file.c_str());
  for (const char* name : {"control.sock", "data.sock", kLockName})
    (void)unlink(absl::StrCat(path, "/", name).c_str());
  (void)rmdir(path.c_str());
  (void)rmdir(path.substr(0, path.rfind('/')).c_str());
}

absl::StatusOr<std::unique_ptr<RuntimeDir>> RuntimeDir::Claim(const std::string& path) {
  struct stat info;
  bool was_there = stat(path.c_str(), &info) == 0;
  FW_RETURN_IF_ERROR(MakeFolder(path));
  std::string lock_path = absl::StrCat(path, "/", kLockName);
  bool had_lock = lstat(lock_path.c_str(), &info) == 0;
  absl::StatusOr<ProcessLock> lock = ProcessLock::Take(lock_path, 0640);
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("another feedwaterd is running in ", path, " (", lock.status().message(),
                     "); stop it, or give this one another runtime_dir"));
  }
  if (!lock.ok()) return lock.status();
  if (stat(path.c_str(), &info) == 0 && EverybodyMayWrite(info)) {
    spdlog::warn("{} may be written by everybody: any local user can replace the sockets in it",
                 path);
  }
  return std::unique_ptr<RuntimeDir>(
      new RuntimeDir(path, *std::move(lock), !was_there || had_lock));
}

void RuntimeDir::RemoveAtEnd(std::vector<std::string> files) { files_ = std::move(files); }

RuntimeDir::~RuntimeDir() {
  if (files_.has_value()) RemoveRuntimeDir(path_, *files_);
}

void RuntimeDir::Admit(const AccessList& access) const {
  mode_t folder_mode = 0750, socket_mode = 0660;
  gid_t group = static_cast<gid_t>(-1);
  if (access.users.empty() && access.groups.size() == 1) group = *access.groups.begin();
  const std::string sockets[] = {control_socket(), data_socket()};
  if (group != static_cast<gid_t>(-1)) {
    bool given = !ours_ || GiveToGroup(path_, group);
    for (const std::string& socket : sockets) given = GiveToGroup(socket, group) && given;
    if (!given) group = static_cast<gid_t>(-1);
  }
  if (!access.empty() && group == static_cast<gid_t>(-1)) {
    folder_mode = 0755;
    socket_mode = 0666;
  }
  if (ours_ && chmod(path_.c_str(), folder_mode) != 0) {
    spdlog::warn("{}: cannot set the mode {:o} (errno {})", path_, folder_mode, errno);
  }
  for (const std::string& socket : sockets) {
    if (chmod(socket.c_str(), socket_mode) != 0 && errno != ENOENT) {
      spdlog::warn("{}: cannot set the mode {:o} (errno {})", socket, socket_mode, errno);
    }
  }
}

}  // namespace feedwater::server
