#include "server/pipeline/breadcrumbs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

constexpr char kMagic[8] = {'F', 'W', 'C', 'R', 'U', 'M', 'B', '1'};
constexpr size_t kHeaderBytes = 64;
constexpr size_t kMaxWorkers = 4096;
constexpr size_t kHandlerStackBytes = 64 << 10;

struct Header {
  char magic[8];
  uint64_t workers;
};

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
struct sigaction previous[std::size(kFaults)];

// Set while the thread works: touched by its own signal handler only, so a plain access is enough.
// initial-exec: reading it must not allocate inside a signal handler.
thread_local Breadcrumb* this_threads_crumb __attribute__((tls_model("initial-exec"))) = nullptr;

// Only what is safe in a signal handler.
void OnFault(int signal, siginfo_t* info, void*) {
  // Sent by a person or a supervisor, such as a watchdog's SIGABRT: no sample's fault.
  const bool is_sent = info->si_code == SI_USER || info->si_code == SI_QUEUE;
  Breadcrumb* const crumb = this_threads_crumb;
  if (!is_sent && crumb != nullptr && crumb->working != 0)
    crumb->signal = static_cast<uint32_t>(signal);
  for (size_t i = 0; i < std::size(kFaults); ++i) {
    if (kFaults[i] == signal) sigaction(signal, &previous[i], nullptr);
  }
  // The instruction runs once more and faults for good, abort() raises its signal again; one that
  // was sent has to be sent again.
  if (info->si_code <= 0) raise(signal);
}

absl::string_view Field(const char* text, size_t capacity) {
  return absl::string_view(text, strnlen(text, capacity));
}

void Copy(absl::string_view text, char* field, size_t capacity) {
  const size_t length = std::min(text.size(), capacity);
  std::memcpy(field, text.data(), length);
  std::memset(field + length, 0, capacity - length);
}

// The crumbs of threads that died of a fault. The file may hold anything.
std::vector<Breadcrumbs::Crash> Read(int fd) {
  std::vector<Breadcrumbs::Crash> crashes;
  Header header;
  if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return crashes;
  }
  const size_t workers = std::min<size_t>(header.workers, kMaxWorkers);
  for (size_t i = 0; i < workers; ++i) {
    Breadcrumb crumb;
    const auto at = static_cast<off_t>(kHeaderBytes + i * sizeof(crumb));
    if (pread(fd, &crumb, sizeof(crumb), at) != sizeof(crumb)) break;
    if (crumb.working != 1 || crumb.signal == 0 || crumb.signal > 64 || crumb.record < 0) continue;
    Breadcrumbs::Crash crash;
    crash.dataset = std::string(Field(crumb.dataset, sizeof(crumb.dataset)));
    crash.path = std::string(Field(crumb.path, sizeof(crumb.path)));
    crash.record = crumb.record;
    crash.offset = crumb.offset;
    crash.length = crumb.length;
    crash.signal = static_cast<int>(crumb.signal);
    crashes.push_back(std::move(crash));
  }
  return crashes;
}

}  // namespace

void Breadcrumb::Enter(absl::string_view dataset_digest, int64_t at_record, int64_t at_offset,
                       int64_t of_length, absl::string_view at_path) {
  signal = 0;
  record = at_record;
  offset = at_offset;
  length = of_length;
  Copy(dataset_digest, dataset, sizeof(dataset));
  const size_t kept = std::min(at_path.size(), sizeof(path) - 1);
  std::memcpy(path, at_path.data(), kept);
  path[kept] = 0;
  std::atomic_signal_fence(std::memory_order_release);  // all of it, before it counts
  working = 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void Breadcrumb::Leave() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  working = 0;
}

bool Breadcrumbs::AreInUse(const std::string& state_dir) {
  return absl::IsAlreadyExists(
      ProcessLock::Take(absl::StrCat(state_dir, "/breadcrumbs.lock"), 0600).status());
}

absl::StatusOr<std::unique_ptr<Breadcrumbs>> Breadcrumbs::Open(const std::string& state_dir,
                                                               size_t workers,
                                                               std::vector<Crash>* crashes) {
  const std::string path = state_dir + "/breadcrumbs";
  if (workers > kMaxWorkers) return absl::InvalidArgumentError("too many workers");
  absl::StatusOr<ProcessLock> lock = ProcessLock::Take(path + ".lock", 0600);
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to another daemon: give each its own state_dir (",
                     lock.status().message(), ")"));
  }
  if (!lock.ok()) return lock.status();
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat info;
  if (!fd || fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no file"));
  *crashes = Read(fd.get());
  const size_t bytes = kHeaderBytes + workers * sizeof(Breadcrumb);
  // Allocated, not sparse: a store into a hole of a full disk would be a SIGBUS.
  if (ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, absl::StrCat("clearing ", path));
  if (const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    return ErrnoStatus(error, absl::StrCat("making room for ", path));
  }
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("mapping ", path));
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.workers = workers;
  std::memcpy(data, &header, sizeof(header));
  return std::unique_ptr<Breadcrumbs>(
      new Breadcrumbs(*std::move(lock), static_cast<std::byte*>(data), bytes));
}

Breadcrumbs::~Breadcrumbs() { munmap(data_, bytes_); }

Breadcrumb* Breadcrumbs::crumb(size_t worker) const {
  return reinterpret_cast<Breadcrumb*>(data_ + kHeaderBytes + worker * sizeof(Breadcrumb));
}

CrumbOfThisThread::CrumbOfThisThread(Breadcrumb* crumb) {
  this_threads_crumb = crumb;
  if (crumb == nullptr) return;
  stack_t before;
  if (sigaltstack(nullptr, &before) != 0 || (before.ss_flags & SS_DISABLE) == 0) return;
  stack_.reset(new (std::nothrow) std::byte[kHandlerStackBytes]);
  stack_t stack = {};
  stack.ss_sp = stack_.get();
  stack.ss_size = kHandlerStackBytes;
  if (stack_ != nullptr && sigaltstack(&stack, nullptr) != 0) stack_.reset();
}

CrumbOfThisThread::~CrumbOfThisThread() {
  this_threads_crumb = nullptr;
  if (stack_ == nullptr) return;
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

void NoteFaults() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kFaults); ++i) sigaction(kFaults[i], &action, &previous[i]);
}

}  // namespace feedwater::server
