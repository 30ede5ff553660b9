// Walks through the headers of a large file: reads at any offset, through a window of a few KiB so
// that small records do not cost a system call each. For indexing; the records of a running job are
// read by storage. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/fd.h"
#include "server/source/file_patterns.h"
#include "server/source/format.h"

namespace feedwater::server {

class FileWindow {
 public:
  // Unpacked, where the file is compressed as a whole.
  static absl::StatusOr<FileWindow> Open(const DatasetLocation& location, const FoundFile& file);
  // The same over a descriptor of that file, which stays the caller's.
  static absl::StatusOr<FileWindow> Over(int fd, const DatasetLocation& location,
                                         const FoundFile& file);

  int64_t bytes() const { return bytes_; }           // as it was found
  const std::string& what() const { return what_; }  // the file, for messages
  bool Holds(int64_t offset, int64_t length) const {
    return offset >= 0 && length >= 0 && length <= bytes_ && offset <= bytes_ - length;
  }
  // Puts [offset, offset + length) at `to`. REQUIRES: Holds(offset, length). FailedPrecondition
  // when the file became shorter meanwhile.
  absl::Status Read(int64_t offset, size_t length, char* to);
  absl::Status Read(int64_t offset, size_t length, std::string* to) {
    to->resize(length);
    return Read(offset, length, to->data());
  }

 private:
  static constexpr size_t kWindow = 8 << 10;

  absl::Status ReadFully(int64_t offset, size_t length, char* to) const;

  Fd fd_;
  std::string what_;
  int64_t bytes_ = 0;
  std::string window_;
  int64_t window_at_ = 0;
};

}  // namespace feedwater::server
