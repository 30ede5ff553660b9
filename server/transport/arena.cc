#include "server/transport/arena.h"

#include <fcntl.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/cpus.h"
#include "server/base/log_limiter.h"
#include "server/base/units.h"
#include "spdlog/spdlog.h"

// Newer than Debian 12's headers.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace feedwater::server {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr int kMaxNode = 1024;

Fd MakeMemfd() {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create("feedwater-arena", flags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = Fd(memfd_create("feedwater-arena", flags));  // kernel < 6.3
  return fd;
}

// New pages of the mapping come from this node while it has any: an arena on the wrong node is
// slow, an out-of-memory kill because one node is full would be worse.
void BindToNode(void* data, size_t bytes, int node) {
  if (node < 0 || node >= kMaxNode) return;
  constexpr int kBits = 8 * sizeof(unsigned long);
  unsigned long mask[kMaxNode / kBits] = {};
  mask[node / kBits] = 1UL << (node % kBits);
  if (mbind(data, bytes, MPOL_PREFERRED, mask, kMaxNode, 0) == 0) return;
  const int error = errno;
  if (!ClientLog().Admits("arenas that are not bound", LogLimiter::kNoSource)) return;
  spdlog::warn("the arena is not bound to NUMA node {}: {}", node,
               ErrnoStatus(error, "mbind").ToString());  // containers refuse mbind by default
}

absl::Status Allocate(int fd, int64_t bytes) {
  while (fallocate(fd, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    const std::string what = absl::StrCat("allocating ", FormatBytes(bytes), " of shared memory");
    if (error == ENOSPC || error == ENOMEM) {
      return absl::ResourceExhaustedError(ErrnoStatus(error, what).message());
    }
    return ErrnoStatus(error, what);
  }
  return absl::OkStatus();
}

// The pages exist already; this fills the page table, so that workers do not stop at each first
// write.
void Prefault(std::byte* data, size_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  const size_t page = sysconf(_SC_PAGESIZE);  // kernel < 5.14
  for (size_t i = 0; i < bytes; i += page)
    *const_cast<volatile std::byte*>(data + i) = std::byte{0};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(
    int64_t bytes, int numa_node, const std::shared_ptr<MemoryBudget>& budget,
    const std::shared_ptr<MemoryBudget>& user_budget, ArenaWatch* watch, uid_t owner) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("an arena of ", bytes, " bytes"));
  std::unique_ptr<Arena> arena(new Arena);
  ArenaAccount& account = arena->account_;
  account.owner = owner;
  if (user_budget != nullptr) {
    FW_ASSIGN_OR_RETURN(account.of_user, user_budget->Reserve("arenas of this user", bytes));
  }
  if (budget != nullptr) {
    FW_ASSIGN_OR_RETURN(account.of_daemon, budget->Reserve("arenas", bytes));
  }
  if (const int64_t limit = MemoryLimitBytes(); bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an arena of ", FormatBytes(bytes), " is more than the ", FormatBytes(limit),
                     " that this process may use; take smaller batches or fewer slots"));
  }
  Fd fd = MakeMemfd();
  if (!fd) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(fd.get(), bytes) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sizing an arena of ", FormatBytes(bytes)));
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("mapping an arena of ", FormatBytes(bytes)));
  }
  arena->data_ = static_cast<std::byte*>(data);
  arena->bytes_ = bytes;
  BindToNode(data, bytes, numa_node);  // before the first page is allocated
  FW_RETURN_IF_ERROR(Allocate(fd.get(), bytes));
  Prefault(arena->data_, bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus(errno, "sealing the arena");

  // The client's descriptor is read-only. The writable file stays open through the mapping alone.
  arena->client_fd_ =
      Fd(open(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!arena->client_fd_) {
    if (errno == EMFILE || errno == ENFILE) return ErrnoStatus(errno, "opening the arena to read");
    // No /proc: the seals alone keep the client from writing.
    arena->client_fd_ = Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!arena->client_fd_) return ErrnoStatus(errno, "opening the arena to read");
  }
  if (watch != nullptr) FW_RETURN_IF_ERROR(watch->Add(fd.get(), std::move(account)));
  return arena;
}

Arena::~Arena() {
  client_fd_ = Fd();  // never sent
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Arena::LetGo() {
  client_fd_ = Fd();
  // A piece at a time: page faults of the whole process wait while one is exchanged. The system
  // call itself, since ThreadSanitizer would take the C function for a write to the memory.
  constexpr int64_t kPiece = 64 << 20;
  for (int64_t at = 0; at < bytes_; at += kPiece) {
    const long changed = syscall(
        SYS_mmap, data_ + at, static_cast<size_t>(std::min(kPiece, bytes_ - at)),
        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L);
    if (changed < 0) {  // the rest goes with this object
      spdlog::warn("the memory of an ended session stays until no worker writes to it: {}",
                   ErrnoStatus(errno, "mmap").ToString());
      return;
    }
  }
}

}  // namespace feedwater::server
