// Reading files while an index is built: bytes at a place, and a whole file from its beginning to
// its end through a buffer, for formats that find their records by looking at every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/source/file_patterns.h"
#include "server/source/format.h"

namespace feedwater::server {

// Puts the bytes [offset, offset + bytes) at `to`. FailedPrecondition where the file ends before:
// it became shorter. `what` names the file.
absl::Status ReadFileAt(int fd, int64_t offset, void* to, size_t bytes, const std::string& what);

// InvalidArgument with the cure when a file begins as gzip, zstd, bzip2 or xz do, or as UTF-16:
// it is no text that can be read in any order.
absl::Status CheckIsPlainText(absl::string_view head, const std::string& what);

// What text files of Windows begin with; no part of their text.
inline constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// Owned by one thread. The file is as long as it was when it was found: what is appended meanwhile
// is not seen.
class FileStream {
 public:
  // `buffer` is used by one file after the other; it grows when one record does not fit, and its
  // memory is counted with `builder`. Both must outlive the stream.
  static absl::StatusOr<FileStream> Open(const DatasetLocation& location, const FoundFile& file,
                                         std::vector<char>* buffer, IndexBuilder* builder);

  // What is read and not skipped, from position() on. Valid until the next Fill.
  absl::string_view view() const {
    return absl::string_view(buffer_->data() + begin_, end_ - begin_);
  }
  int64_t position() const { return read_ - static_cast<int64_t>(end_ - begin_); }
  bool reaches_end() const { return read_ == bytes_; }  // of the file, by view()
  bool is_done() const { return reaches_end() && begin_ == end_; }
  void Skip(size_t bytes) { begin_ += bytes; }  // REQUIRES: bytes <= view().size()
  // Reads on; view() is longer afterwards, or reaches the end.
  absl::Status Fill();

  const std::string& what() const { return what_; }  // the file, for messages

 private:
  FileStream(Fd fd, std::string what, int64_t bytes, std::vector<char>* buffer,
             IndexBuilder* builder)
      : fd_(std::move(fd)),
        what_(std::move(what)),
        bytes_(bytes),
        buffer_(buffer),
        builder_(builder) {}

  Fd fd_;
  std::string what_;
  int64_t bytes_ = 0, read_ = 0;
  std::vector<char>* buffer_;
  IndexBuilder* builder_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace feedwater::server
