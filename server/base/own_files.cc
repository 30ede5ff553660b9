#include "server/base/own_files.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/escape.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

// Whether nobody has been told of this folder yet.
bool IsNews(const std::string& folder) {
  static auto* const mu = new Mutex;
  static auto* const told = new std::set<std::string>;  // a few for each state folder
  MutexLock lock(mu);
  return told->insert(folder).second;
}

}  // namespace

bool IsRegularFile(const std::string& path, struct stat* info) {
  struct stat there;
  if (info == nullptr) info = &there;
  return lstat(path.c_str(), info) == 0 && S_ISREG(info->st_mode);
}

std::string BeginningOf(const std::string& path, size_t bytes) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Fd file(open(path.c_str(), kFlags | O_NOATIME));  // a look is no use of the file
  if (!file && errno == EPERM) file = Fd(open(path.c_str(), kFlags));
  struct stat info;
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::string beginning(bytes, '\0');
  const ssize_t got = pread(file.get(), beginning.data(), bytes, 0);
  return got == static_cast<ssize_t>(bytes) ? beginning : "";
}

absl::Status RemoveOwnFile(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  const Fd file(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const bool is_it = file && fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode);
  absl::Status cut;
  if (is_it && info.st_nlink <= 1 && ftruncate(file.get(), 0) != 0) cut = ErrnoStatus(errno, path);
  if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, path);
  return cut;
}

void ForeignEntries::Add(const std::string& name) {
  if (count_++ == 0 || name < first_) first_ = name;
}

void ForeignEntries::Report() const {
  if (count_ == 0 || !IsNews(folder_)) return;
  spdlog::info("{}: {} not Feedwater's {} left alone and not counted, such as '{}'", folder_,
               count_ == 1 ? "1 entry that is" : absl::StrCat(count_, " entries that are"),
               count_ == 1 ? "is" : "are", Escaped(first_));
}

}  // namespace feedwater::server
