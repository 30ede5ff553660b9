#include "server/source/file_window.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/storage/fault.h"

namespace feedwater::server {

absl::StatusOr<FileWindow> FileWindow::Open(const DatasetLocation& location,
                                            const FoundFile& file) {
  FileWindow window;
  FW_ASSIGN_OR_RETURN(window.fd_,
                      file.RootIn(location).OpenFile(file.path_to_read(), /*direct_io=*/false));
  window.what_ = location.root->Describe(file.path);
  window.bytes_ = file.bytes;
  return window;
}

absl::StatusOr<FileWindow> FileWindow::Over(int fd, const DatasetLocation& location,
                                            const FoundFile& file) {
  FileWindow window;
  window.fd_ = Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!window.fd_) return StorageError(errno, location.root->Describe(file.path));
  window.what_ = location.root->Describe(file.path);
  window.bytes_ = file.bytes;
  return window;
}

absl::Status FileWindow::ReadFully(int64_t offset, size_t length, char* to) const {
  for (size_t done = 0; done < length;) {
    const ssize_t got = pread(fd_.get(), to + done, length - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StorageError(errno, what_);
    if (got == 0) return FileChangedError(absl::StrCat(what_, " became shorter meanwhile"));
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status FileWindow::Read(int64_t offset, size_t length, char* to) {
  if (length > kWindow) return ReadFully(offset, length, to);
  const auto end = offset + static_cast<int64_t>(length);
  if (offset < window_at_ || end > window_at_ + static_cast<int64_t>(window_.size())) {
    window_.resize(static_cast<size_t>(
        std::min(static_cast<int64_t>(kWindow), std::max<int64_t>(bytes_ - offset, 0))));
    window_at_ = offset;
    const absl::Status read = ReadFully(offset, window_.size(), window_.data());
    if (!read.ok()) {
      window_.clear();
      return read;
    }
  }
  std::memcpy(to, window_.data() + (offset - window_at_), length);
  return absl::OkStatus();
}

}  // namespace feedwater::server
