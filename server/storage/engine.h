// A ReadEngine carries out reads for one worker thread: submit several, collect them as they
// complete. Engines differ in speed and never in bytes, but for those that are there to measure
// what is above them (EngineEntry::gives_bytes). A leaf file of storage/engines/ registers each
// one.
//
// Thread safety: an engine belongs to the one thread that creates it. FileCache is shared by all
// workers and thread-safe.
//
// A new engine derives from ReadEngine and leaves the bookkeeping of a read - alignment, short
// reads, interruptions, the end of the file, padding - to Begin, Remaining and Advance, so that all
// engines agree in it. An engine that injects faults wraps another one, or gives Advance the
// results it wants seen.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/base/registry.h"
#include "server/storage/roots.h"
#include "server/storage/storage_calls.h"

namespace feedwater::server {

// A file that reads go to. Alive while any read holds it.
struct OpenedFile {
  Fd fd;
  int64_t size = 0;    // at the time of opening
  uint64_t stamp = 0;  // FileStamp at the time of opening
  uint64_t inode = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // its times, by the clock of its file system
  bool direct_io = false;
  bool is_local = true;  // reading and closing it end as soon as a local device answers
  uint32_t user = 0;     // for whom it was opened
  std::string path;      // for messages
};

// Another number when the file is another one, or has been written, linked or given other rights
// since; never 0.
uint64_t FileStamp(const struct stat& info);
// Whether the file is still as it was when it was opened, so that what was read from it is, too.
// FailedPrecondition that names it when it is not.
absl::Status ProveUnchanged(const OpenedFile& file);
// Whether whatever is written into the file from now on shows in its stamp: not within the tick of
// its last change. What is read before may be half of that change.
bool WouldShowChanges(const struct stat& info, bool is_local);
// File times move in ticks of 10 ms at most, but where they have no fractions of a second.
inline constexpr int64_t kFileTimeTickNs = 20'000'000;
// Waits, 20 ms at most (2 s where times have no fractions), until a later change of what `info`
// describes would show in its times, and of a file of up to 20 MB until its last write has ended
// (LastWriteEndsNs), 1 s at most. Call it between taking the stamp and looking inside.
void AwaitClockTick(const struct stat& info);
// A file's times move when a write begins. When the last one has ended (CLOCK_REALTIME, in
// nanoseconds), even if it was as long as the file, at 20 MB/s or more.
int64_t LastWriteEndsNs(int64_t bytes, int64_t changed_ns);
// The same of what `info` describes, where it is still to come; 0: it has ended, or tells of
// another clock.
int64_t UnsettledUntilNs(const struct stat& info);
// Whether what is read from the file now may be kept under its stamp: its last write has ended.
bool IsSettled(const OpenedFile& file);
// FileChangedError, with the cure behind what is said.
absl::Status FileHasChanged(absl::string_view message);

// Open files by (root, path), at most `limit` at a time; the least recently used one that nobody
// reads is closed first.
class FileCache {
 public:
  // Files that are not local are closed by `calls` (may be null).
  FileCache(size_t limit, bool direct_io, std::shared_ptr<StorageCalls> calls = nullptr);
  ~FileCache();
  // The file as it was at `not_before` (MonotonicNs) or later: one that was opened or looked at
  // before that is looked at again, and opened anew when its path is another file now or it has
  // been written. With Reach::kLocal: what is open already, or can be looked at and opened without
  // a risk to hang; IsElsewhere where that is not so.
  absl::StatusOr<std::shared_ptr<const OpenedFile>> Open(const Root& root,
                                                         absl::string_view relative_path,
                                                         Reach reach = Reach::kAnywhere,
                                                         uint32_t user = 0, int64_t not_before = 0);
  // What Open would give, without opening.
  struct Facts {
    int64_t size = 0;
    uint64_t stamp = 0;
    uint64_t inode = 0;
    int64_t modified_ns = 0, changed_ns = 0;
    bool is_file = false;  // a regular one, or a link to one
  };
  absl::StatusOr<Facts> Look(const Root& root, absl::string_view relative_path, Reach reach,
                             int64_t not_before);
  bool direct_io() const;  // whether it is asked for; a file system may refuse it
  // The file is not handed out again: the next Open opens the path anew. After an error of storage,
  // whose handle may be good for nothing.
  void Forget(const Root& root, absl::string_view relative_path);
  size_t open_files() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One read. The owner keeps it and its buffer alive until it is collected.
struct ReadOp {
  std::shared_ptr<const OpenedFile> file;
  int64_t offset = 0;
  int64_t length = 0;
  // Where the bytes go: at least ReadBufferBytes(length, file->direct_io) bytes, aligned to
  // kReadAlignment. Bytes [0, length) of `data` after completion are the file's [offset, offset +
  // length); with direct I/O `data` may start inside the buffer.
  absl::Span<std::byte> buffer;
  void* user = nullptr;  // the owner's

  absl::Status status;  // set on completion: OK only when all `length` bytes arrived;
                        // FailedPrecondition "PATH ends at byte N, M bytes short: truncated since
                        // it was indexed"
  const std::byte* data = nullptr;

 private:
  friend class ReadEngine;
  int64_t done_ = 0;  // bytes of the buffer that need no reading any more; aligned with direct I/O
  int64_t reached_ = 0;  // bytes of the buffer that hold file bytes
  int retries_ = 0;      // EINTR and EAGAIN so far
};

inline constexpr size_t kReadAlignment = 4096;
inline constexpr size_t kReadPadding =
    64;  // readable, zeroed bytes after the data: decoders may load past the end
size_t ReadBufferBytes(int64_t length, bool direct_io);  // length >= 0 and below 2^62

class ReadEngine {
 public:
  virtual ~ReadEngine() = default;
  virtual absl::string_view name() const = 0;
  // Takes a read on. Never blocks on the device; reads taken on together are started together by
  // the next Collect. REQUIRES: in_flight() < depth.
  virtual void Submit(ReadOp* op) = 0;
  // Starts what was submitted and hands back one completed read, or nullptr: with `wait`, only when
  // none is in flight.
  virtual ReadOp* Collect(bool wait) = 0;
  virtual size_t in_flight() const = 0;

  // Carries a read out here and now.
  static void ReadHere(ReadOp* op);

 protected:
  struct Piece {
    int64_t offset = 0, length = 0;
    std::byte* into = nullptr;
  };
  // Makes the op ready. False: it is complete already (nothing to read, or a status that says what
  // is wrong with it).
  static bool Begin(ReadOp* op);
  // The read(2) that the op needs next. REQUIRES: Begin or Advance asked for one.
  static Piece Remaining(const ReadOp& op);
  // Takes in the result of that read: bytes, or -errno. True: the op is complete. False: it needs
  // another read.
  static bool Advance(ReadOp* op, int64_t result);
  // The rest of an op that has begun, with pread.
  static void ReadRest(ReadOp* op);

 private:
  static void Finish(ReadOp* op, absl::Status status);
};

inline constexpr size_t kMaxEngineDepth = 4096;

struct EngineOptions {
  size_t depth = 32;  // reads in flight at most, 1 to kMaxEngineDepth
};

struct EngineEntry {
  static constexpr const char* kKind = "storage engine";
  std::string summary;
  // `auto` takes the engine with the highest preference that works; it never takes one with 0.
  int preference = 0;
  // Whether this machine lets the engine run: what works ("io_uring works on this kernel (6.1):
  // ..."), or an error that says why not (errno, seccomp, sysctl) and names the cure.
  std::function<absl::StatusOr<std::string>()> probe;
  std::function<absl::StatusOr<std::unique_ptr<ReadEngine>>(const EngineOptions&)> create;
  bool gives_bytes = true;  // those of the files; false: what it reads must not be kept
};

// The start-up probe: `wanted` is auto or a registered name. auto takes io_uring where it works and
// pread elsewhere.
struct EngineChoice {
  std::string name;
  std::string reason;  // "io_uring works on this kernel (6.1): DEFER_TASKRUN, restricted to reads",
                       // "io_uring refused: ..."
  // auto: what to make where the chosen one, though it worked, cannot be made for one more worker
  // (no locked memory or no descriptor left). Empty: nothing.
  std::string fallback;
  bool gives_bytes = true;  // EngineEntry's
};
absl::StatusOr<EngineChoice> ChooseEngine(absl::string_view wanted);
absl::StatusOr<std::unique_ptr<ReadEngine>> CreateEngine(absl::string_view name,
                                                         const EngineOptions& options);

}  // namespace feedwater::server
