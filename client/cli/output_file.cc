#include "client/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/base/fd.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

absl::Status WriteAll(int fd, const std::string& bytes, const std::string& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return server::ErrnoStatus(errno, absl::StrCat("writing ", path));
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWritable(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is a folder; -o takes the name of a file"));
    }
    if (!S_ISREG(info.st_mode)) return absl::OkStatus();
  }
  const std::string folder = FolderOf(path);
  if (stat(folder.c_str(), &info) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("there is no folder ", folder, " to write ",
                                                   path, " into; make it first: mkdir -p ",
                                                   folder));
  }
  if (access(folder.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "no right to write into ", folder, ": name a file in a folder of your own with -o"));
  }
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  FW_RETURN_IF_ERROR(CheckWritable(path));
  struct stat info;
  const bool is_special = stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  const std::string unfinished = is_special ? path : absl::StrCat(path, ".", getpid(), ".new");
  server::Fd fd(open(unfinished.c_str(),
                     O_WRONLY | O_CLOEXEC | (is_special ? 0 : O_CREAT | O_TRUNC | O_NOFOLLOW),
                     0666));
  if (!fd) return server::ErrnoStatus(errno, absl::StrCat("creating ", path));
  absl::Status status = WriteAll(fd.get(), bytes, path);
  if (is_special) return status;
  if (status.ok() && rename(unfinished.c_str(), path.c_str()) != 0) {
    status = server::ErrnoStatus(errno, absl::StrCat("writing ", path));
  }
  if (!status.ok()) unlink(unfinished.c_str());
  return status;
}

}  // namespace feedwater::cli
