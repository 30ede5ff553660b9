#include "server/base/process_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/status.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

constexpr int kFolderAttempts = 250;  // each holds the folder's lock for some system calls only
constexpr auto kFolderPause = std::chrono::milliseconds(20);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The fields of /proc/PID/stat from the third one on (the second, a name, may hold anything).
std::vector<std::string> StatFields(const std::string& pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 > stat.size()) return {};
  return absl::StrSplit(stat.substr(name_end + 2), ' ');
}

long long StartOf(const std::vector<std::string>& fields) {
  constexpr size_t kStart = 22 - 3;
  int64_t start = -1;
  return fields.size() > kStart && absl::SimpleAtoi(fields[kStart], &start) ? start : -1;
}

// PID namespaces differ in their inodes. 0: not known.
uint64_t PidNamespace() {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool HasKillPending(int pid) {
  for (absl::string_view line :
       absl::StrSplit(ReadFile(absl::StrCat("/proc/", pid, "/status")), '\n')) {
    if (!absl::StartsWith(line, "SigPnd:") && !absl::StartsWith(line, "ShdPnd:")) continue;
    unsigned long long pending = 0;
    if (sscanf(std::string(line.substr(7)).c_str(), "%llx", &pending) == 1 &&
        (pending & (1ull << (SIGKILL - 1))) != 0) {
      return true;
    }
  }
  return false;
}

// What the file says of its holder: "pid start namespace".
struct Holder {
  int pid = 0;
  int64_t start = -1;
  uint64_t pid_namespace = 0;
};
Holder ReadHolder(int fd) {
  char text[128] = {};
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  Holder holder;
  if (size <= 0) return holder;
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(text, static_cast<size_t>(size)), absl::ByAnyChar(" \n"),
                     absl::SkipEmpty());
  if (words.empty() || !absl::SimpleAtoi(words[0], &holder.pid)) return Holder();
  if (words.size() >= 3 && (!absl::SimpleAtoi(words[1], &holder.start) ||
                            !absl::SimpleAtoi(words[2], &holder.pid_namespace))) {
    holder.start = -1;
  }
  return holder;
}

absl::Status WriteHolder(int fd, const std::string& path) {
  const std::string text = absl::StrCat(getpid(), " ", ProcessStart(), " ", PidNamespace(), "\n");
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

bool IsOver(const Holder& holder) {
  return holder.pid > 0 && holder.start >= 0 && holder.pid_namespace != 0 &&
         holder.pid_namespace == PidNamespace() && ProcessIsOver(holder.pid, holder.start);
}

absl::StatusOr<Fd> OpenFile(const std::string& path, int flags, mode_t mode) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, mode));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  return fd;
}

// Who looks at the file, or puts another in its place, has the folder meanwhile. Nothing where the
// file system has no locks for folders.
Fd LockFolderOf(const std::string& path) {
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  Fd fd(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int attempt = 0; fd && attempt < kFolderAttempts; ++attempt) {
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    std::this_thread::sleep_for(kFolderPause);
  }
  return Fd();
}

}  // namespace

long long ProcessStart() { return StartOf(StatFields("self")); }

bool ProcessIsOver(int pid, long long start) {
  const std::vector<std::string> fields = StatFields(absl::StrCat(pid));
  if (fields.empty() || StartOf(fields) != start) return false;
  // The first thread of a process that was killed is a zombie until the last one has ended.
  return fields[0] == "Z" || fields[0] == "X" || HasKillPending(pid);
}

absl::StatusOr<ProcessLock> ProcessLock::Take(const std::string& path, mode_t mode) {
  const Fd folder = LockFolderOf(path);
  FW_ASSIGN_OR_RETURN(Fd fd, OpenFile(path, 0, mode));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("cannot lock ", path));
    const Holder holder = ReadHolder(fd.get());
    if (!folder || !IsOver(holder)) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is held by ",
                       holder.pid > 0 ? absl::StrCat("pid ", holder.pid) : "another process"));
    }
    spdlog::warn("{}: its holder, pid {}, was killed and hangs in the kernel: taken over", path,
                 holder.pid);
    const std::string next = path + ".next";
    (void)unlink(next.c_str());
    FW_ASSIGN_OR_RETURN(fd, OpenFile(next, O_EXCL, mode));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
      return ErrnoStatus(errno, absl::StrCat("cannot lock ", next));
    FW_RETURN_IF_ERROR(WriteHolder(fd.get(), next));
    if (rename(next.c_str(), path.c_str()) != 0)
      return ErrnoStatus(errno, absl::StrCat("cannot replace ", path));
    return ProcessLock(std::move(fd));
  }
  FW_RETURN_IF_ERROR(WriteHolder(fd.get(), path));
  return ProcessLock(std::move(fd));
}

}  // namespace feedwater::server
