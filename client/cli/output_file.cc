#include "client/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/base/atomic_file.h"
#include "server/base/fd.h"
#include "server/base/status.h"

namespace feedwater::cli {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
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
  if (!is_special) return server::WriteFileAtomically(path, {bytes}, 0666);
  const server::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return server::ErrnoStatus(errno, absl::StrCat("opening ", path));
  return server::Annotate(server::WriteAll(fd.get(), bytes), path);
}

}  // namespace feedwater::cli
