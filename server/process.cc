#include "server/process.h"

#include <malloc.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/cgroup.h"
#include "server/base/escape.h"
#include "server/base/mutex.h"
#include "server/base/sanitized.h"
#include "server/base/status.h"
#include "server/base/thread.h"
#include "server/pipeline/read_buffers.h"

namespace feedwater::server {
namespace {

// glibc gives threads up to eight heaps a CPU, and each keeps the most that its threads ever used.
// gRPC's threads come and go, so a flood of calls leaves its peak in one heap after another. One a
// CPU is what the workers can use at the same time; they keep their buffers, so sharing costs them
// nothing. (M_TRIM_THRESHOLD stays alone: setting it makes glibc map every large block anew, which
// whole pictures would pay for.)
constexpr int kLeastHeaps = 4;

std::string DescribeSender(const siginfo_t& info) {
  if (info.si_code == SI_KERNEL) return "the kernel";  // a terminal's key
  std::string name;
  if (!ReadSmallFile(absl::StrCat("/proc/", info.si_pid, "/comm"), &name)) name = "gone";
  return absl::StrCat("process ", info.si_pid, " (",
                      Escaped(absl::StripTrailingAsciiWhitespace(name)), ") of user ", info.si_uid);
}

// What the start takes beside the workers' (a ring and a file each), and what the first clients do:
// 20 descriptors and 14 threads were measured with one worker, of which gRPC's threads are 9.
constexpr int64_t kLeastDescriptors = 44;
constexpr size_t kOtherThreads = 20;
constexpr size_t kLeastMemoryBytes = 128 << 20;  // beside the addresses of read buffers

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void ForbidAttaching() {
  if (!kSanitized && prctl(PR_SET_DUMPABLE, 0) != 0)
    spdlog::warn("PR_SET_DUMPABLE failed (errno {})", errno);
}

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    spdlog::warn("the limit of open files cannot be raised (errno {})", errno);
}

int64_t OpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX) return INT32_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

absl::Status ProbeResources(size_t workers) {
  const int64_t descriptors = kLeastDescriptors + 2 * static_cast<int64_t>(workers);
  if (const int64_t limit = OpenFileLimit(); limit < descriptors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this process may open ", limit, " files, and needs ", descriptors,
                     " to start; cure: raise LimitNOFILE= (ulimit -n)"));
  }
  // All at a time, as they will be.
  const size_t addresses =
      kLeastMemoryBytes + workers * HugeRegion::kSpread * ReadBuffers::kBaseBytes;
  void* const memory = mmap(nullptr, addresses, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this process has no address space to start: ", ErrnoStatus(errno, "mmap").message(),
        "; cure: raise LimitAS= and LimitDATA= (ulimit -v, -d)"));
  }
  absl::Status status;
  Mutex mu;
  CondVar ended;
  bool over = false;
  std::vector<std::thread> threads;
  while (threads.size() < workers + kOtherThreads && status.ok()) {
    auto thread = StartThread("the daemon's start", [&] {
      MutexLock lock(&mu);
      while (!over) ended.Wait(&mu);
    });
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      status = absl::ResourceExhaustedError(
          absl::StrCat(thread.status().message(), ", or LimitAS=: it needs ",
                       workers + kOtherThreads, " and got ", threads.size()));
    }
  }
  {
    MutexLock lock(&mu);
    over = true;
  }
  ended.SignalAll();
  for (std::thread& thread : threads) thread.join();
  munmap(memory, addresses);
  return status;
}

void BoundHeaps() {
#ifdef M_ARENA_MAX
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  mallopt(M_ARENA_MAX, static_cast<int>(std::clamp<long>(cpus, kLeastHeaps, INT_MAX)));
#endif
}

void BlockSignals() {
  sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // What nobody here waits for and the kernel may send on somebody else's doing: leases and O_ASYNC
  // (SIGIO, or any real-time signal in its place), urgent data, sockets that are gone, timers,
  // power. SIGXFSZ is RLIMIT_FSIZE's: a file that cannot grow is an error like a full disk.
  for (int number : {SIGPIPE, SIGXFSZ, SIGIO, SIGURG, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                     SIGPWR, SIGSTKFLT, SIGTTIN, SIGTTOU})
    signal(number, SIG_IGN);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) signal(number, SIG_IGN);
}

Signal WaitForSignal() {
  const sigset_t set = Signals();
  siginfo_t info{};
  while (sigwaitinfo(&set, &info) < 0) {
  }
  return {info.si_signo, DescribeSender(info)};
}

void ExitWithin(double seconds, std::function<void()> last) {
  auto thread = StartThread("ending in time", [seconds, last = std::move(last)] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    spdlog::warn("something still holds the daemon up after {} s: exiting all the same", seconds);
    last();
    spdlog::shutdown();
    _exit(0);
  });
  if (thread.ok()) {
    thread->detach();
  } else {
    spdlog::warn("{}", std::string(thread.status().message()));
  }
}

// Only what a signal handler may do: the heap may be what failed.
[[noreturn]] static void EndWithReason() {
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      constexpr char kText[] =
          "feedwaterd: out of memory, and nothing can be given up: ending. Clients wait for the "
          "next daemon and continue; cure: more memory for it (MemoryMax=, the container's limit), "
          "or a smaller `memory` in feedwater.yaml\n";
      (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
      _exit(1);
    } catch (const std::exception& error) {
      constexpr char kText[] = "feedwaterd: a bug, an unexpected exception: ";
      (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
      (void)!write(STDERR_FILENO, error.what(), strlen(error.what()));
      (void)!write(STDERR_FILENO, "\n", 1);
    } catch (...) {
    }
  }
  abort();
}

void InstallTerminateHandler() { std::set_terminate(EndWithReason); }

}  // namespace feedwater::server
