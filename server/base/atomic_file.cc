#include "server/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "server/base/fd.h"
#include "server/base/status.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxWrite = size_t{1} << 30;  // write() takes 2 GiB at most
constexpr int kTries = 8;

// The unfinished file, held by a lock, so that two processes never write into one.
absl::StatusOr<Fd> OpenUnfinished(const std::string& path, unsigned mode) {
  for (int i = 0; i < kTries; ++i) {
    Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
    if (!fd) return ErrnoStatus(errno, "open");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return absl::AbortedError("another process is writing it at this moment");
    // Between opening and locking the other one may have finished: then this is its file by now.
    struct stat ours, there;
    if (fstat(fd.get(), &ours) != 0) return ErrnoStatus(errno, "fstat");
    if (!S_ISREG(ours.st_mode)) return absl::FailedPreconditionError("it is no regular file");
    if (lstat(path.c_str(), &there) != 0 || there.st_ino != ours.st_ino ||
        there.st_dev != ours.st_dev)
      continue;
    if (ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, "ftruncate");
    return fd;
  }
  return absl::AbortedError("other processes are writing it at this moment");
}

absl::Status Finish(int fd, const std::string& unfinished, const std::string& folder,
                    const std::string& path, absl::FunctionRef<absl::Status(int fd)> write_bytes) {
  FW_RETURN_IF_ERROR(write_bytes(fd));
  if (fsync(fd) != 0) return ErrnoStatus(errno, "fsync");
  if (rename(unfinished.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename");
  // The new name is only safe with the folder. File systems that cannot do that say EINVAL.
  const Fd parent(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || (fsync(parent.get()) != 0 && errno != EINVAL))
    return ErrnoStatus(errno, absl::StrCat("fsync of ", folder));
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return ErrnoStatus(written < 0 ? errno : ENOSPC, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& parts, unsigned mode) {
  const auto write_parts = [&](int fd) {
    for (absl::string_view part : parts) FW_RETURN_IF_ERROR(WriteAll(fd, part));
    return absl::OkStatus();
  };
  return WriteFileAtomically(path, write_parts, mode);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::FunctionRef<absl::Status(int fd)> write_bytes,
                                 unsigned mode) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string unfinished = absl::StrCat(folder, "/.", name, ".new");
  const auto fail = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("saving ", path));
  };
  absl::StatusOr<Fd> fd = OpenUnfinished(unfinished, mode);
  if (!fd.ok()) return fail(fd.status());
  const absl::Status status = Finish(fd->get(), unfinished, folder, path, write_bytes);
  if (status.ok()) return status;
  unlink(unfinished.c_str());  // while it is locked; after the rename it is not there any more
  return fail(status);
}

}  // namespace feedwater::server
