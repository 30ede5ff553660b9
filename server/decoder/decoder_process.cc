#include "server/decoder/decoder_process.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/units.h"
#include "server/decoder/process_memory.h"

namespace feedwater::server {
namespace {

// Between its socket's end and its own a process has nothing to do but to go.
constexpr int kDyingMs = 2000;
// How often one that is waited for is looked at, and which part of the time one that works has the
// CPU at least, on a busy machine.
constexpr double kLookSeconds = 0.2, kWorkingPart = 0.1;
// Its libraries are many, and a machine may be busy.
constexpr double kStartSeconds = 60, kStartCpuSeconds = 30;

// Beside what a sample is said to take: blocks between others that the heap cannot give back.
constexpr int64_t kSpareBytes = 64 << 20;

int64_t Nanoseconds(const timeval& time) {
  return time.tv_sec * 1'000'000'000LL + time.tv_usec * 1000LL;
}

}  // namespace

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

absl::StatusOr<std::unique_ptr<DecoderProcess>> DecoderProcess::Start(const DecoderProgram& program,
                                                                      const Options& options) {
  FW_ASSIGN_OR_RETURN(
      Region region, Region::Make(options.input_bytes, options.output_bytes, options.memory_bytes));
  FW_ASSIGN_OR_RETURN(DecoderProgram::Child child, program.Start(region.fd()));
  std::unique_ptr<DecoderProcess> process(new DecoderProcess(std::move(child), std::move(region)));
  process->SetPatience(kStartSeconds, kStartCpuSeconds);
  return process;
}

void DecoderProcess::SetPatience(double seconds, double cpu_seconds) {
  patience_seconds_ = seconds;
  working_seconds_ = cpu_seconds;
  const double slice = std::min(seconds, kLookSeconds);
  timeval time = {};
  time.tv_sec = static_cast<time_t>(slice);
  time.tv_usec = static_cast<suseconds_t>((slice - std::floor(slice)) * 1e6);
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
}

DecoderProcess::~DecoderProcess() {
  if (!IsReaped()) KillAndReap();
}

bool DecoderProcess::IsReaped() const {
  MutexLock lock(&mu_);
  return pid_ < 0;
}

void DecoderProcess::Kill() const {
  MutexLock lock(&mu_);
  if (pid_ > 0) kill(pid_, SIGKILL);
}

int DecoderProcess::Reap() {
  pid_t pid;
  {
    MutexLock lock(&mu_);
    pid = pid_;
  }
  // Waits without the lock, so that Kill need not wait, and gives the number back with it.
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  int status = 0;
  rusage used{};
  MutexLock lock(&mu_);
  pid_t reaped;
  while ((reaped = wait4(pid, &status, 0, &used)) < 0 && errno == EINTR) {
  }
  if (reaped < 0) status = SIGKILL;  // nobody knows how it ended: not the record's fault
  cpu_ns_ = Nanoseconds(used.ru_utime) + Nanoseconds(used.ru_stime);
  pid_ = -1;
  return status;
}

int DecoderProcess::KillAndReap() {
  Kill();
  return Reap();
}

void DecoderProcess::LimitMemory(int64_t bytes) {
  MutexLock lock(&mu_);
  if (pid_ < 0) return;
  if (own_bytes_ == 0) own_bytes_ = DataBytes(pid_);
  rlimit limit{};
  if (prlimit(pid_, RLIMIT_DATA, nullptr, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return;
  limit.rlim_cur =
      std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(own_bytes_ + bytes + kSpareBytes));
  prlimit(pid_, RLIMIT_DATA, &limit, nullptr);  // where that is refused the first limit holds
}

DecoderProcess::Outcome DecoderProcess::EndedBySelf(std::string* how) {
  pid_t pid;
  {
    MutexLock lock(&mu_);
    pid = pid_;
  }
  bool is_gone = false;
  for (int waited = 0; waited < kDyingMs && !is_gone; ++waited) {
    siginfo_t info{};
    const int looked = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
    is_gone = looked == 0 ? info.si_pid == pid : errno == ECHILD;
    if (!is_gone) usleep(1000);
  }
  const int status = is_gone ? Reap() : KillAndReap();
  if (!is_gone && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    *how = "closed its socket";
    return Outcome::kDied;
  }
  if (WIFEXITED(status)) {
    *how = absl::StrCat("ended with status ", WEXITSTATUS(status));
    return Outcome::kDied;
  }
  const int signal = WTERMSIG(status);
  *how = absl::StrCat("died of ", SignalName(signal));
  if (signal == SIGSYS) absl::StrAppend(how, " (a system call that its sandbox refuses)");
  return signal == SIGKILL ? Outcome::kKilled : Outcome::kDied;
}

DecoderProcess::Outcome DecoderProcess::Exchange(std::string* how) {
  ++sequence_;
  ssize_t sent;
  do {
    sent = send(socket_.get(), &sequence_, sizeof(sequence_), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 &&
      (errno == EAGAIN || errno == EWOULDBLOCK)) {  // one that reads leaves nothing there
    KillAndReap();
    *how = "answered without reading what it was asked";
    return Outcome::kDied;
  }
  if (sent != sizeof(sequence_)) return EndedBySelf(how);
  return Await(how);
}

DecoderProcess::Outcome DecoderProcess::Await(std::string* how) {
  const int64_t patience_ns = static_cast<int64_t>(patience_seconds_ * 1e9);
  const int64_t start = MonotonicNs();
  int64_t deadline = start + patience_ns;
  int64_t cpu_at_deadline = cpu_taken_ns_;
  for (;;) {
    uint32_t told[2] = {};
    ssize_t got;
    do {
      got = recv(socket_.get(), told, sizeof(told), 0);
    } while (got < 0 && errno == EINTR);
    if (got == sizeof(told[0]) && told[0] == sequence_) return Outcome::kAnswered;
    if (got > 0) {
      KillAndReap();
      *how = "answered what it was not asked";
      return Outcome::kDied;
    }
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return EndedBySelf(how);

    const int64_t cpu = CpuNs();
    if (watch_ && !watch_()) {
      KillAndReap();
      *how = "was not needed any more";
      return Outcome::kUnwanted;
    }
    // Only its own work makes a record bad. Time that passes is the machine's.
    const double worked = 1e-9 * static_cast<double>(cpu - cpu_taken_ns_);
    const bool goes_on =
        MonotonicNs() < deadline || static_cast<double>(cpu - cpu_at_deadline) >
                                        kWorkingPart * static_cast<double>(patience_ns);
    if (worked < working_seconds_ && goes_on) {
      if (MonotonicNs() < deadline) continue;
      deadline += patience_ns;
      cpu_at_deadline = cpu;
      continue;
    }
    KillAndReap();
    *how = absl::StrCat("had not answered after ",
                        FormatSeconds(1e-9 * static_cast<double>(MonotonicNs() - start)), " and ",
                        FormatSeconds(worked), " of CPU time");
    return worked < working_seconds_ ? Outcome::kStoodStill : Outcome::kDied;
  }
}

int64_t DecoderProcess::CpuNs() {
  MutexLock lock(&mu_);
  clockid_t clock;
  timespec time{};
  if (pid_ > 0 && clock_getcpuclockid(pid_, &clock) == 0 && clock_gettime(clock, &time) == 0)
    cpu_ns_ = time.tv_sec * 1'000'000'000LL + time.tv_nsec;
  return cpu_ns_;
}

int64_t DecoderProcess::TakeCpuNs() {
  const int64_t now = CpuNs();
  const int64_t since = now - cpu_taken_ns_;
  cpu_taken_ns_ = now;
  return since > 0 ? since : 0;
}

}  // namespace feedwater::server
