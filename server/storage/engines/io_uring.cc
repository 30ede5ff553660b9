// Engine `io_uring`: one ring per engine, that is per worker thread. Submit only notes a read;
// Collect hands all noted reads to the kernel in one system call and takes the completions from
// shared memory, so a thread decodes while the device works.
//
// The ring is made for one thread (SINGLE_ISSUER) and does its completion work when that thread
// asks for it (DEFER_TASKRUN), with COOP_TASKRUN or nothing of the kind on older kernels. Before it
// is enabled it is restricted to plain reads without flags and to no registrations at all, so that
// a fault in this process cannot turn it into a way to open, write or connect.
//
// A ring that breaks later on is given up: what the kernel still has is waited for, and from then
// on this engine reads with pread, as slowly and as rightly as the engine of that name.
//
// liburing 2.3 does not export its wrappers for restrictions and for enabling a ring, hence
// io_uring_register by number.
#include <liburing.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/storage/engine.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

struct RingMode {
  unsigned flags;
  const char* name;
};
// TASKRUN_FLAG lets a look at the completion queue notice work that waits to be done.
constexpr RingMode kRingModes[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
     "SINGLE_ISSUER, DEFER_TASKRUN"},
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, "COOP_TASKRUN"},
    {0, "no task-run flags"},
};
constexpr int kBusyAttempts = 1000;  // of one submission that the kernel refuses for want of memory

std::string FirstLine(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// Why a ring could not be had, and what to do about it.
absl::Status Refusal(int error, absl::string_view step) {
  const std::string what =
      absl::StrCat("io_uring refused: ", step, " gave ", strerrorname_np(error));
  switch (error) {
    case EPERM:
    case EACCES: {
      const std::string disabled = FirstLine("/proc/sys/kernel/io_uring_disabled");
      if (disabled == "2") {
        return absl::PermissionDeniedError(absl::StrCat(
            what, ": kernel.io_uring_disabled=2; cure: sysctl kernel.io_uring_disabled=0"));
      }
      if (disabled == "1") {
        return absl::PermissionDeniedError(absl::StrCat(
            what,
            ": kernel.io_uring_disabled=1 and this process is not in kernel.io_uring_group; "
            "cure: add the daemon's group, or sysctl kernel.io_uring_disabled=0"));
      }
      return absl::PermissionDeniedError(absl::StrCat(
          what,
          ": a seccomp filter forbids it, as Docker's default profile does; cure: a profile that "
          "allows io_uring_setup, io_uring_enter and io_uring_register"));
    }
    case ENOSYS:
      return absl::UnimplementedError(absl::StrCat(
          what, ": this kernel or sandbox has no io_uring; cure: Linux 5.10 or newer"));
    case EINVAL:
      return absl::UnimplementedError(
          absl::StrCat(what, ": this kernel cannot restrict a ring; cure: Linux 5.10 or newer"));
    case ENOMEM:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": the locked-memory limit is too low; cure: LimitMEMLOCK=infinity"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": no file descriptor is free; cure: raise LimitNOFILE"));
    default:
      return ErrnoStatus(error, what);
  }
}

// Plain reads, no flags, no registrations.
int Restrict(io_uring* ring) {
  io_uring_restriction rules[1] = {};
  rules[0].opcode = IORING_RESTRICTION_SQE_OP;
  rules[0].sqe_op = IORING_OP_READ;
  return io_uring_register(static_cast<unsigned>(ring->ring_fd), IORING_REGISTER_RESTRICTIONS,
                           rules, 1);
}

class IoUringEngine final : public ReadEngine {
 public:
  static absl::StatusOr<std::unique_ptr<IoUringEngine>> Create(const EngineOptions& options) {
    std::unique_ptr<IoUringEngine> engine(new IoUringEngine);
    int error = EINVAL;
    for (const RingMode& mode : kRingModes) {
      io_uring_params params = {};
      params.flags = mode.flags | IORING_SETUP_R_DISABLED;
      error = -io_uring_queue_init_params(static_cast<unsigned>(options.depth), &engine->ring_,
                                          &params);
      if (error == 0) {
        engine->mode_ = mode.name;
        engine->made_ = true;
        break;
      }
      if (error != EINVAL) break;  // EINVAL: an older kernel; fewer flags may do
    }
    if (error != 0) return Refusal(error, "io_uring_setup");
    if (int rc = Restrict(&engine->ring_); rc < 0) return Refusal(-rc, "restricting the ring");
    int rc = io_uring_register(static_cast<unsigned>(engine->ring_.ring_fd),
                               IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
    if (rc < 0) return Refusal(-rc, "enabling the ring");
    return engine;
  }

  ~IoUringEngine() override {
    if (!made_) return;
    while (in_kernel_ > 0 &&
           Collect(/*wait=*/true) != nullptr) {  // the kernel writes to the owner's buffers
    }
    io_uring_queue_exit(&ring_);
  }

  absl::string_view name() const override { return "io_uring"; }
  const char* mode() const { return mode_; }
  // Only to see whether it works: says nothing when it does not.
  void BeProbed() { probed_ = true; }
  int broken() const { return broken_; }

  void Submit(ReadOp* op) override {
    ++in_flight_;
    if (!Begin(op)) {
      ready_.push_back(op);
      return;
    }
    Queue(op);
  }

  ReadOp* Collect(bool wait) override {
    while (ready_.empty() && in_kernel_ > 0) {
      Enter(wait);
      TakeCompletions();
      if (!wait) {
        if (ready_.empty() && !noted_.empty()) Enter(/*wait=*/false);  // the rest of short reads
        break;
      }
    }
    if (ready_.empty()) return nullptr;
    ReadOp* op = ready_.front();
    ready_.pop_front();
    --in_flight_;
    return op;
  }

  size_t in_flight() const override { return in_flight_; }

 private:
  IoUringEngine() = default;

  // Notes the op's next read. The ring has room: it has at least as many entries as reads may be in
  // flight.
  void Queue(ReadOp* op) {
    if (broken_ != 0) return ReadNow(op);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {  // a caller that exceeds the depth
      Advance(op, -ENOBUFS);
      ready_.push_back(op);
      return;
    }
    const Piece piece = Remaining(*op);
    io_uring_prep_read(sqe, op->file->fd.get(), piece.into, static_cast<unsigned>(piece.length),
                       static_cast<uint64_t>(piece.offset));
    io_uring_sqe_set_data(sqe, op);
    noted_.push_back(op);
    ++in_kernel_;
  }

  // Submits what is noted; with `wait`, sleeps until a completion is there.
  void Enter(bool wait) {
    for (int attempt = 0; attempt < kBusyAttempts; ++attempt) {
      const bool sleep = wait && io_uring_cq_ready(&ring_) == 0;
      if (broken_ != 0) {
        if (sleep && ready_.empty()) usleep(1000);  // for what the kernel still has
        return;
      }
      if (noted_.empty() && !sleep) return;
      int rc = sleep ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit_and_get_events(&ring_);
      while (noted_.size() > io_uring_sq_ready(&ring_)) noted_.pop_front();
      if (rc >= 0) {
        if (noted_.empty()) return;
        continue;  // stopped at an entry that was refused; its completion says so
      }
      if (rc == -EINTR) continue;
      if (rc != -EAGAIN && rc != -EBUSY) return Break(-rc);
      if (io_uring_cq_ready(&ring_) > 0) return;  // make room first
      sched_yield();
    }
    if (!noted_.empty()) Break(ENOMEM);
  }

  // The kernel takes no more reads. Those that it did not take, and all to come, go the other way.
  void Break(int error) {
    broken_ = error;
    if (!probed_) {
      spdlog::error("io_uring: io_uring_enter gave {}: this worker reads with pread from now on",
                    strerrorname_np(error));
    }
    in_kernel_ -= noted_.size();
    const std::deque<ReadOp*> refused = std::exchange(noted_, {});
    for (ReadOp* op : refused) ReadNow(op);
  }

  void ReadNow(ReadOp* op) {
    ReadRest(op);
    ready_.push_back(op);
  }

  void TakeCompletions() {
    io_uring_cqe* cqe;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      auto* op = static_cast<ReadOp*>(io_uring_cqe_get_data(cqe));
      const int64_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      --in_kernel_;
      if (Advance(op, result)) {
        ready_.push_back(op);
      } else {
        Queue(op);
      }
    }
  }

  io_uring ring_ = {};
  bool made_ = false;
  const char* mode_ = "";
  bool probed_ = false;
  int broken_ = 0;             // the errno that ended the ring's use
  std::deque<ReadOp*> noted_;  // in the ring, not yet taken by the kernel
  std::deque<ReadOp*> ready_;  // complete, not collected
  size_t in_flight_ = 0;       // submitted by the owner, not collected
  size_t in_kernel_ = 0;       // noted, not completed
};

// Makes a real ring and reads through it: a filter may allow making one and forbid using it.
absl::StatusOr<std::string> Probe() {
  absl::StatusOr<std::unique_ptr<IoUringEngine>> engine = IoUringEngine::Create({.depth = 1});
  if (!engine.ok()) return engine.status();
  auto file = std::make_shared<OpenedFile>();
  constexpr char kText[] = "feedwater";
  file->fd = Fd(memfd_create("feedwater-probe", MFD_CLOEXEC));
  file->path = "memfd:feedwater-probe";
  if (!file->fd || pwrite(file->fd.get(), kText, sizeof(kText), 0) != sizeof(kText)) {
    return ErrnoStatus(errno, "io_uring not probed: making a memory file");
  }
  alignas(kReadAlignment) std::byte buffer[kReadAlignment];
  ReadOp op;
  op.file = file;
  op.length = sizeof(kText);
  op.buffer = absl::MakeSpan(buffer);
  (*engine)->BeProbed();
  (*engine)->Submit(&op);
  if ((*engine)->Collect(/*wait=*/true) != &op) {
    return absl::InternalError("io_uring refused: a test read never completed");
  }
  if ((*engine)->broken() != 0) return Refusal((*engine)->broken(), "io_uring_enter");
  if (!op.status.ok()) return Annotate(op.status, "io_uring refused: a test read failed");
  if (std::memcmp(op.data, kText, sizeof(kText)) != 0) {
    return absl::InternalError("io_uring refused: a test read gave wrong bytes");
  }
  utsname kernel;
  if (uname(&kernel) != 0) return ErrnoStatus(errno, "uname");
  return absl::StrCat("io_uring works on this kernel (", kernel.release, "): ", (*engine)->mode(),
                      ", restricted to reads");
}

const Registrar kRegistrar(
    "io_uring",
    EngineEntry{"io_uring: batches of reads in one system call, waiting overlapped with decoding.",
                /*preference=*/2, Probe,
                [](const EngineOptions& options) -> absl::StatusOr<std::unique_ptr<ReadEngine>> {
                  return IoUringEngine::Create(options);
                }});

}  // namespace
}  // namespace feedwater::server
