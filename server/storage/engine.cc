#include "server/storage/engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr int64_t kAlignment = kReadAlignment;
constexpr int64_t kMaxLength = int64_t{1} << 62;
constexpr int64_t kMaxPiece = int64_t{1} << 30;  // read(2) stops short of 2 GiB
constexpr int kMaxRetries = 100;                 // of one read, for EINTR and EAGAIN

int64_t AlignDown(int64_t value) { return value & ~(kAlignment - 1); }
int64_t AlignUp(int64_t value) { return AlignDown(value + kAlignment - 1); }

// Where in the file the buffer begins, and how many of its bytes must be read.
int64_t BufferOffset(const ReadOp& op) {
  return op.file->direct_io ? AlignDown(op.offset) : op.offset;
}
int64_t BytesWanted(const ReadOp& op) { return op.offset - BufferOffset(op) + op.length; }

absl::Status CheckOp(const ReadOp& op) {
  if (op.file == nullptr) return absl::InternalError("a read without a file");
  if (op.offset < 0 || op.length < 0 || op.offset > kMaxLength || op.length > kMaxLength) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.file->path, ": no file has ", op.length, " bytes at offset ", op.offset));
  }
  if (op.buffer.size() < ReadBufferBytes(op.length, op.file->direct_io)) {
    return absl::InternalError(absl::StrCat(op.file->path, ": a buffer of ", op.buffer.size(),
                                            " bytes is too small to read ", op.length));
  }
  if (reinterpret_cast<uintptr_t>(op.buffer.data()) % kReadAlignment != 0) {
    return absl::InternalError(absl::StrCat(op.file->path, ": read buffer is not aligned"));
  }
  return absl::OkStatus();
}

// -1: not known.
int64_t SizeNow(const ReadOp& op) {
  struct stat info;
  return fstat(op.file->fd.get(), &info) == 0 ? info.st_size : -1;
}

absl::Status EndOfFile(const ReadOp& op, int64_t reached) {
  int64_t end = BufferOffset(op) + reached;
  // A read beyond the end does not tell where the end is.
  const int64_t size = SizeNow(op);
  if (size >= 0 && size < op.offset + op.length) end = size;
  return FileChangedError(absl::StrCat(op.file->path, " ends at byte ", end, ", ",
                                       op.offset + op.length - end,
                                       " bytes short: truncated since it was indexed"));
}

}  // namespace

size_t ReadBufferBytes(int64_t length, bool direct_io) {
  // A direct read starts up to one block before the first byte and ends up to one block after the
  // last.
  int64_t bytes = direct_io ? AlignUp(length + kAlignment - 1) : length;
  return static_cast<size_t>(bytes) + kReadPadding;
}

bool ReadEngine::Begin(ReadOp* op) {
  op->done_ = 0;
  op->reached_ = 0;
  op->retries_ = 0;
  op->data = nullptr;
  absl::Status checked = CheckOp(*op);
  if (!checked.ok() || op->length == 0) {
    Finish(op, std::move(checked));
    return false;
  }
  return true;
}

ReadEngine::Piece ReadEngine::Remaining(const ReadOp& op) {
  int64_t total = op.file->direct_io ? AlignUp(BytesWanted(op)) : op.length;
  return {BufferOffset(op) + op.done_, std::min(total - op.done_, kMaxPiece),
          op.buffer.data() + op.done_};
}

bool ReadEngine::Advance(ReadOp* op, int64_t result) {
  if (result == -EINTR || result == -EAGAIN) {
    if (++op->retries_ <= kMaxRetries) return false;
  }
  if (result < 0) {
    std::string what =
        absl::StrCat("reading ", op->length, " bytes at ", op->offset, " of ", op->file->path);
    if (result == -EINVAL && op->file->direct_io) {
      absl::StrAppend(&what, " with direct I/O (cure: storage.direct_io: false)");
    }
    Finish(op, StorageError(static_cast<int>(-result), what));
    return true;
  }
  const int64_t end = op->done_ + result;
  if (end >= BytesWanted(*op)) {
    Finish(op, absl::OkStatus());
    return true;
  }
  if (end <= op->reached_) {  // nothing new: this is the end of the file
    // ... or a direct read that stopped inside the same block once more.
    const bool more = result > 0 && op->file->direct_io && SizeNow(*op) > BufferOffset(*op) + end;
    if (more && ++op->retries_ <= kMaxRetries) return false;
    Finish(op, EndOfFile(*op, op->reached_));
    return true;
  }
  // A short read. With direct I/O the next one starts at a block again, which may be before `end`.
  op->reached_ = end;
  op->done_ = op->file->direct_io ? AlignDown(end) : end;
  return false;
}

void ReadEngine::ReadRest(ReadOp* op) {
  for (bool complete = false; !complete;) {
    const Piece piece = Remaining(*op);
    const ssize_t got =
        pread(op->file->fd.get(), piece.into, static_cast<size_t>(piece.length), piece.offset);
    complete = Advance(op, got < 0 ? -errno : got);
  }
}

void ReadEngine::ReadHere(ReadOp* op) {
  if (Begin(op)) ReadRest(op);
}

void ReadEngine::Finish(ReadOp* op, absl::Status status) {
  op->status = std::move(status);
  if (!op->status.ok()) return;
  std::byte* data = op->buffer.data() + (op->offset - BufferOffset(*op));
  std::memset(data + op->length, 0, kReadPadding);
  op->data = data;
}

absl::StatusOr<EngineChoice> ChooseEngine(absl::string_view wanted) {
  const auto& registry = Registry<EngineEntry>::Get();
  if (wanted != "auto") {
    const EngineEntry* entry = registry.Find(wanted);
    if (entry == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(registry.Unknown(wanted), ", auto"));
    }
    absl::StatusOr<std::string> probed = entry->probe();
    if (!probed.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("storage engine ", wanted, " was asked for, but ", probed.status().message(),
                       "; or set storage.engine: auto"));
    }
    return EngineChoice{std::string(wanted), absl::StrCat(*probed, " (asked for)"), "",
                        entry->gives_bytes};
  }

  std::vector<std::pair<int, std::string>> candidates;
  for (const std::string& name : registry.Names()) {
    int preference = registry.Find(name)->preference;
    if (preference > 0) candidates.emplace_back(preference, name);
  }
  std::sort(candidates.rbegin(), candidates.rend());
  std::string refused;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::string& name = candidates[i].second;
    absl::StatusOr<std::string> probed = registry.Find(name)->probe();
    if (probed.ok()) {
      return EngineChoice{name, absl::StrCat(refused, *probed),
                          i + 1 < candidates.size() ? candidates[i + 1].second : ""};
    }
    absl::StrAppend(&refused, probed.status().message(), "; ");
  }
  return absl::FailedPreconditionError(absl::StrCat("no storage engine works: ", refused));
}

absl::StatusOr<std::unique_ptr<ReadEngine>> CreateEngine(absl::string_view name,
                                                         const EngineOptions& options) {
  const auto& registry = Registry<EngineEntry>::Get();
  const EngineEntry* entry = registry.Find(name);
  if (entry == nullptr) return absl::InvalidArgumentError(registry.Unknown(name));
  if (options.depth < 1 || options.depth > kMaxEngineDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("an engine's depth is 1 to ", kMaxEngineDepth, " reads, not ", options.depth));
  }
  return entry->create(options);
}

}  // namespace feedwater::server
