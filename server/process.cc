#include "server/process.h"

#include <malloc.h>
#include <signal.h>
#include <spdlog/spdlog.h>
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

#include "server/base/sanitized.h"
#include "server/base/thread.h"

namespace feedwater::server {
namespace {

// glibc gives threads up to eight heaps a CPU, and each keeps the most that its threads ever used.
// gRPC's threads come and go, so a flood of calls leaves its peak in one heap after another. One a
// CPU is what the workers can use at the same time; they keep their buffers, so sharing costs them
// nothing. (M_TRIM_THRESHOLD stays alone: setting it makes glibc map every large block anew, which
// whole pictures would pay for.)
constexpr int kLeastHeaps = 4;

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

void BoundHeaps() {
#ifdef M_ARENA_MAX
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  mallopt(M_ARENA_MAX, static_cast<int>(std::clamp<long>(cpus, kLeastHeaps, INT_MAX)));
#endif
}

void BlockSignals() {
  sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // RLIMIT_FSIZE: a file that cannot grow is an error like a full disk
}

int WaitForSignal() {
  sigset_t set = Signals();
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
  return signal;
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
          "feedwaterd: out of memory, where nothing can be given up: ending. Clients wait for the "
          "next daemon and go on where they are; cure: more memory for it (MemoryMax=, the "
          "container's limit), or a smaller `memory` in feedwater.yaml\n";
      (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
      _exit(1);
    } catch (const std::exception& error) {
      constexpr char kText[] = "feedwaterd: a bug, an exception that nobody expects: ";
      (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
      (void)!write(STDERR_FILENO, error.what(), strlen(error.what()));
      (void)!write(STDERR_FILENO, "\n", 1);
    } catch (...) {
    }
  }
  abort();
}

void NameTheReasonOfAnEnd() { std::set_terminate(EndWithReason); }

}  // namespace feedwater::server
