#include "server/columnar/held_file.h"

#include <arrow/buffer.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace feedwater::server {

using arrow::Buffer;
using arrow::Future;
using arrow::Result;
using arrow::Status;

Status HeldFile::Close() {
  is_closed_ = true;
  return Status::OK();
}

Status HeldFile::Seek(int64_t position) {
  if (position < 0) return Status::Invalid("is damaged: a place before its first byte");
  position_ = position;
  met_end_ = false;
  return Status::OK();
}

Result<int64_t> HeldFile::ReadAt(int64_t position, int64_t length, bool may_be_short, void* to) {
  if (position < 0 || length < 0) return Status::Invalid("is damaged: a negative place or length");
  const int64_t there = std::min(length, std::max<int64_t>(bytes_ - position, 0));
  if (there < length && !may_be_short) {
    return Status::Invalid("ends at byte ", bytes_, ", and ", length, " bytes from byte ", position,
                           " on should be there");
  }
  int64_t done = 0;
  while (done < there) {
    const ssize_t got = pread(fd_, static_cast<char*>(to) + done, static_cast<size_t>(there - done),
                              static_cast<off_t>(position + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error_ = errno;
      return Status::IOError("reading it: ", std::strerror(error_));
    }
    if (got == 0) return Status::IOError("became shorter while it was read");
    done += got;
  }
  return there;
}

Result<std::shared_ptr<Buffer>> HeldFile::ReadAt(int64_t position, int64_t length,
                                                 bool may_be_short) {
  if (position < 0 || length < 0) return Status::Invalid("is damaged: a negative place or length");
  // No more memory than there are bytes, whatever the file says.
  const int64_t there = std::min(length, std::max<int64_t>(bytes_ - position, 0));
  ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateBuffer(there, pool_));
  if (there < length && !may_be_short)
    return ReadAt(position, length, may_be_short, nullptr).status();
  ARROW_RETURN_NOT_OK(ReadAt(position, there, may_be_short, buffer->mutable_data()).status());
  return std::shared_ptr<Buffer>(std::move(buffer));
}

Result<int64_t> HeldFile::Read(int64_t length, void* to) {
  ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position_, length, to));
  position_ += got;
  met_end_ = met_end_ || got < length;
  return got;
}

Result<std::shared_ptr<Buffer>> HeldFile::Read(int64_t length) {
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<Buffer> buffer, ReadAt(position_, length));
  position_ += buffer->size();
  met_end_ = met_end_ || buffer->size() < length;
  return buffer;
}

Future<std::shared_ptr<Buffer>> HeldFile::ReadAsync(const arrow::io::IOContext&, int64_t position,
                                                    int64_t length, bool may_be_short) {
  return Future<std::shared_ptr<Buffer>>::MakeFinished(ReadAt(position, length, may_be_short));
}

std::vector<Future<std::shared_ptr<Buffer>>> HeldFile::ReadManyAsync(
    const arrow::io::IOContext& context, const std::vector<arrow::io::ReadRange>& ranges) {
  std::vector<Future<std::shared_ptr<Buffer>>> futures;
  futures.reserve(ranges.size());
  for (const arrow::io::ReadRange& range : ranges)
    futures.push_back(ReadAsync(context, range.offset, range.length, /*may_be_short=*/true));
  return futures;
}

}  // namespace feedwater::server
