#include "server/source/columnar_program.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/escape.h"
#include "server/base/fd.h"
#include "server/base/units.h"
#include "server/storage/fault.h"

namespace feedwater::server {
namespace {

constexpr char kName[] = "feedwater-columnar";
// The jemalloc in libarrow starts a thread when it is loaded, which the sandbox would end.
constexpr char kNoThread[] = "JE_ARROW_MALLOC_CONF=background_thread:false";
constexpr size_t kBuffer = 1 << 20;
constexpr int kLookMs = 100;
constexpr uint32_t kMostErrno = 4095;
constexpr int64_t kLeastMemory = 160 << 20, kMostMemory = int64_t{1} << 30;
constexpr int64_t kMemoryPerByte = 4;  // of the file

// One process, ended and waited for with the object.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ > 0) End(/*by_itself=*/false);
  }
  Child(const Child&) = delete;

  // Waits for its end and says how it ended: "died of SIGSEGV", "" with status 0. One that should
  // end by itself is given a while.
  std::string End(bool by_itself) {
    constexpr int kDyingMs = 2000;
    int status = 0;
    pid_t reaped = 0;
    for (int waited = 0; by_itself && waited < kDyingMs; ++waited) {
      reaped = waitpid(pid_, &status, WNOHANG);
      if (reaped != 0 && !(reaped < 0 && errno == EINTR)) break;
      usleep(1000);
    }
    if (reaped == 0) {
      kill(pid_, SIGKILL);
      while ((reaped = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
      }
      if (by_itself) {
        pid_ = -1;
        return "closed its socket and stayed";
      }
    }
    pid_ = -1;
    if (reaped < 0) return "ended, and nobody knows how";
    if (WIFEXITED(status)) {
      return WEXITSTATUS(status) == 0 ? ""
                                      : absl::StrCat("ended with status ", WEXITSTATUS(status));
    }
    const int signal = WTERMSIG(status);
    const char* const name = sigabbrev_np(signal);
    return absl::StrCat(
        "died of ", name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal));
  }

  double CpuSeconds() {
    clockid_t clock;
    timespec time{};
    if (clock_getcpuclockid(pid_, &clock) == 0 && clock_gettime(clock, &time) == 0)
      cpu_ = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    return cpu_;
  }

 private:
  pid_t pid_;
  double cpu_ = 0;
};

// Follows what the process writes, byte by byte, and passes on what is staged.
class RowsCheck {
 public:
  explicit RowsCheck(const StagedFolder::Append& append) : append_(append) {}

  // DataLoss: it is not what feedwater-columnar writes.
  absl::Status Take(absl::string_view bytes) {
    while (!bytes.empty()) {
      if (skip_ > 0) {  // inside a row, or the columns
        const size_t part = static_cast<size_t>(std::min<uint64_t>(skip_, bytes.size()));
        if (is_header_) header_.append(bytes.data(), part);
        FW_RETURN_IF_ERROR(append_(bytes.substr(0, part)));
        bytes.remove_prefix(part);
        skip_ -= part;
        if (skip_ == 0 && is_header_) FW_RETURN_IF_ERROR(EndHeader());
        continue;
      }
      if (is_done_) return Wrong();
      // Rows that are there as a whole go on together.
      if (word_.empty()) {
        size_t rows_bytes = 0;
        FW_RETURN_IF_ERROR(TakeRows(bytes, &rows_bytes));
        if (rows_bytes > 0) FW_RETURN_IF_ERROR(append_(bytes.substr(0, rows_bytes)));
        bytes.remove_prefix(rows_bytes);
        if (bytes.empty()) break;
      }
      const size_t part = std::min(need_ - word_.size(), bytes.size());
      word_.append(bytes.data(), part);
      bytes.remove_prefix(part);
      if (word_.size() == need_) FW_RETURN_IF_ERROR(TakeWord());
    }
    return absl::OkStatus();
  }

  bool is_done() const { return is_done_; }
  bool has_error() const { return is_done_ && error_ != 0; }
  ColumnarError error() const { return static_cast<ColumnarError>(error_); }
  const std::string& error_text() const { return error_text_; }
  int storage_error() const { return static_cast<int>(storage_error_); }  // of kStorage

 private:
  static absl::Status Wrong() {
    return absl::DataLossError(absl::StrCat(kName, " has written what makes no sense"));
  }

  absl::Status TakeRows(absl::string_view bytes, size_t* whole) {
    while (has_columns_ && bytes.size() - *whole >= sizeof(uint32_t)) {
      uint32_t length = 0;
      std::memcpy(&length, bytes.data() + *whole, sizeof(length));
      if (length > kMaxRowBytes || length > bytes.size() - *whole - sizeof(length)) break;
      *whole += sizeof(length) + length;
      ++rows_;
    }
    return absl::OkStatus();
  }

  // The next few bytes, which are no row's: a mark, or what stands behind one.
  absl::Status TakeWord() {
    BytesReader reader(word_);
    const auto mark = reader.Number<uint32_t>();
    if (mark == kEndMark || mark == kErrorMark) {
      constexpr size_t head = 12;  // of both
      if (word_.size() < head) {
        need_ = head;
        return absl::OkStatus();
      }
      if (mark == kEndMark) {
        if (!has_columns_ || reader.Number<uint64_t>() != rows_) return Wrong();
        is_done_ = true;
      } else {
        const auto error = reader.Number<uint32_t>();
        const auto length = reader.Number<uint32_t>();
        if (error == 0 || error > static_cast<uint32_t>(ColumnarError::kStorage) ||
            length > kMaxErrorBytes) {
          return Wrong();
        }
        if (word_.size() < head + length) {
          need_ = head + length;
          return absl::OkStatus();
        }
        if (error == static_cast<uint32_t>(ColumnarError::kStorage)) {
          storage_error_ = reader.Number<uint32_t>();
          if (length != sizeof(storage_error_) || storage_error_ == 0 ||
              storage_error_ > kMostErrno) {
            return Wrong();
          }
        }
        error_ = error;
        error_text_ = std::string(absl::string_view(word_).substr(head));
        is_done_ = true;
      }
    } else if (mark == kHeaderMark) {
      if (has_columns_ || is_header_) return Wrong();
      if (word_.size() < 8) {
        need_ = 8;
        return absl::OkStatus();
      }
      skip_ = reader.Number<uint32_t>();
      if (skip_ == 0 || skip_ > kMaxHeaderBytes) return Wrong();
      is_header_ = true;
      FW_RETURN_IF_ERROR(append_(word_));
    } else {
      if (!has_columns_ || mark > kMaxRowBytes) return Wrong();
      skip_ = mark;
      ++rows_;
      FW_RETURN_IF_ERROR(append_(word_));
    }
    word_.clear();
    need_ = sizeof(uint32_t);
    return absl::OkStatus();
  }

  absl::Status EndHeader() {
    std::vector<ColumnarColumn> columns;
    if (!DecodeColumns(header_, &columns)) return Wrong();
    header_ = std::string();
    is_header_ = false;
    has_columns_ = true;
    return absl::OkStatus();
  }

  const StagedFolder::Append& append_;
  std::string header_;              // while it is read
  std::string word_;                // a beginning of what is no row
  size_t need_ = sizeof(uint32_t);  // bytes of word_
  uint64_t skip_ = 0, rows_ = 0;
  bool is_header_ = false, has_columns_ = false, is_done_ = false;
  uint32_t error_ = 0, storage_error_ = 0;
  std::string error_text_;
};

}  // namespace

int64_t ColumnarMemory(int64_t file_bytes) {
  const int64_t more = std::min(file_bytes, kMostMemory) * kMemoryPerByte;
  return std::min(kLeastMemory + more, kMostMemory);
}

absl::StatusOr<ColumnarProgram> ColumnarProgram::Find(const std::string& format) {
  absl::StatusOr<std::shared_ptr<const ChildProgram>> program = ChildProgram::Find(kName);
  if (absl::IsNotFound(program.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "format '", format, "': ", program.status().message(),
        ", which unpacks such files; cure: build Feedwater with pyarrow (scripts/setup --parquet, "
        "then scripts/build), or write the rows once as tfrecord, mds, lmdb or jsonl, with the "
        "library that reads them (pyarrow, datasets)"));
  }
  if (!program.ok()) return program.status();
  return ColumnarProgram(*std::move(program));
}

absl::Status ColumnarProgram::Unpack(const ColumnarRequest& request, int file,
                                     const std::string& what, const StagedFolder::Append& append,
                                     const std::function<absl::Status()>& goes_on) const {
  const char* const kind = request.is_parquet ? "Parquet" : "Arrow";
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " cannot be read as ", kind, ": ", Printable(why),
        "; cure: copy it again, or write it again with pyarrow, or leave it out of 'files'"));
  };
  std::string asked = EncodeRequest(request);
  if (asked.size() > kMaxRequestBytes)
    return absl::InvalidArgumentError("'fields' names more columns than can be asked for");
  {
    std::string length;
    PutNumber(static_cast<uint32_t>(asked.size()), &length);
    asked.insert(0, length);
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(
        ErrnoStatus(errno, absl::StrCat("a socket for ", kName)).message());
  }
  const Fd socket(pair[0]);
  Fd given(pair[1]);
  const int descriptors[] = {given.get(), file};
  FW_ASSIGN_OR_RETURN(const pid_t pid, program_->Start(descriptors, {kNoThread}));
  Child child(pid);
  given = Fd();

  RowsCheck rows(append);
  std::vector<char> buffer(kBuffer);
  size_t sent = 0;
  int64_t quiet_since = MonotonicNs();
  double cpu_then = 0;
  while (true) {
    FW_RETURN_IF_ERROR(goes_on());
    pollfd wait = {socket.get(),
                   static_cast<short>(sent < asked.size() ? POLLIN | POLLOUT : POLLIN), 0};
    const int ready = poll(&wait, 1, kLookMs);
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, absl::StrCat("waiting for ", kName));
    if (ready > 0 && (wait.revents & POLLOUT) != 0 && sent < asked.size()) {
      const ssize_t put =
          send(socket.get(), asked.data() + sent, asked.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put > 0) sent += static_cast<size_t>(put);
    }
    ssize_t got = -1;
    if (ready > 0 && (wait.revents & (POLLIN | POLLHUP | POLLERR)) != 0)
      got = recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) {
      const absl::Status taken = rows.Take({buffer.data(), static_cast<size_t>(got)});
      if (absl::IsDataLoss(taken)) return refuse(taken.message());
      FW_RETURN_IF_ERROR(taken);
      quiet_since = MonotonicNs();
      cpu_then = child.CpuSeconds();
      continue;
    }
    if (got == 0 || (got < 0 && ready > 0 && (wait.revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
                     errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      break;
    }
    const double quiet = 1e-9 * static_cast<double>(MonotonicNs() - quiet_since);
    const double worked = child.CpuSeconds() - cpu_then;
    // Storage that does not answer and a busy machine are waited for, as long as somebody wants it.
    if (worked > patience_.working_seconds) {
      return refuse(
          absl::StrCat("after ", FormatSeconds(worked), " of CPU time there was no further row"));
    }
    if (quiet > patience_.still_seconds && worked < 0.01 * quiet) {
      return absl::UnavailableError(
          absl::StrCat(what, ": ", kName, " has stood still for ", FormatSeconds(quiet),
                       "; cure: look whether its storage answers, and open a new loader"));
    }
  }
  const std::string how = child.End(/*by_itself=*/true);
  if (rows.has_error()) {
    switch (rows.error()) {
      case ColumnarError::kMemory:
        return absl::ResourceExhaustedError(absl::StrCat(
            what, " needs more than ", FormatBytes(static_cast<int64_t>(request.memory_bytes)),
            " to be unpacked; cure: write it with smaller row groups, pages or record batches"));
      case ColumnarError::kMachine:
        return absl::FailedPreconditionError(
            absl::StrCat(what, ": ", Printable(rows.error_text())));
      case ColumnarError::kStorage:
        return StorageError(rows.storage_error(), absl::StrCat("read ", what));
      case ColumnarError::kDamaged:
        return refuse(rows.error_text());
    }
  }
  if (!rows.is_done() && how == "died of SIGKILL") {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": ", kName, " was killed, for want of memory or by a person"));
  }
  if (!rows.is_done() && how == "ended with status 127") {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": ", program_->path(),
                     " finds its libraries no more (libarrow of the pyarrow that "
                     "it was built with); cure: build it again"));
  }
  if (!rows.is_done() || !how.empty()) {
    return refuse(absl::StrCat("the process that unpacks it ",
                               how.empty() ? "ended before its last row" : how));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
