#include "server/source/file_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr size_t kFirstBytes = 1 << 20;

}  // namespace

absl::Status ReadFileAt(int fd, int64_t offset, void* to, size_t bytes, const std::string& what) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = pread(fd, static_cast<char*>(to) + done, bytes - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return StorageError(errno, what);
    if (got == 0) return FileChangedError(absl::StrCat(what, " became shorter meanwhile"));
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status CheckIsPlainText(absl::string_view head, const std::string& what) {
  struct Packed {
    absl::string_view magic, name, cure;
  };
  static constexpr Packed kPacked[] = {{"\x1f\x8b", "gzip", "gunzip"},
                                       {"\x28\xb5\x2f\xfd", "zstd", "zstd -d"},
                                       {"BZh", "bzip2", "bunzip2"},
                                       {"\xfd\x37zXZ", "xz", "unxz"}};
  for (const Packed& packed : kPacked) {
    if (!absl::StartsWith(head, packed.magic)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is compressed as a whole (", packed.name,
                     ") and cannot be read in any order; cure: ", packed.cure, " it"));
  }
  if (absl::StartsWith(head, "\xff\xfe") || absl::StartsWith(head, "\xfe\xff")) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is written in UTF-16; cure: iconv -f UTF-16 -t UTF-8"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileStream> FileStream::Open(const DatasetLocation& location, const FoundFile& file,
                                            std::vector<char>* buffer, IndexBuilder* builder) {
  FW_ASSIGN_OR_RETURN(Fd fd,
                      file.RootIn(location).OpenFile(file.path_to_read(), /*direct_io=*/false));
  FileStream stream(std::move(fd), location.root->Describe(file.path), file.bytes, buffer, builder);
  FW_RETURN_IF_ERROR(stream.Fill());
  return stream;
}

absl::Status FileStream::Fill() {
  if (reaches_end()) return absl::OkStatus();
  std::copy(buffer_->begin() + static_cast<ptrdiff_t>(begin_),
            buffer_->begin() + static_cast<ptrdiff_t>(end_), buffer_->begin());
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_->size()) {
    const auto left = static_cast<size_t>(bytes_ - read_);
    const size_t more = std::min(std::max(buffer_->size(), kFirstBytes), left);
    FW_RETURN_IF_ERROR(builder_->Take(static_cast<int64_t>(more)));
    buffer_->resize(buffer_->size() + more);
  }
  const size_t bytes = static_cast<size_t>(
      std::min<int64_t>(static_cast<int64_t>(buffer_->size() - end_), bytes_ - read_));
  FW_RETURN_IF_ERROR(ReadFileAt(fd_.get(), read_, buffer_->data() + end_, bytes, what_));
  end_ += bytes;
  read_ += static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

}  // namespace feedwater::server
