#include "server/decoder/sandbox.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/base/sanitized.h"
#include "server/decoder/process_memory.h"

namespace feedwater::server {
namespace {

// Whatever their arguments are.
constexpr const char* kAllowed[] = {
    // memory
    "brk", "munmap", "mremap", "madvise",
    // the end, abort() included
    "exit", "exit_group", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "getpid", "gettid",
    "restart_syscall",
    // time and locks
    "clock_gettime", "clock_getres", "gettimeofday", "time", "futex", "sched_yield",
    // what libraries ask about the machine when they begin; none of it leads anywhere
    "getrandom", "getcpu", "sched_getaffinity", "sysinfo", "uname", "getrusage"};

scmp_arg_cmp Equals(unsigned argument, scmp_datum_t value) {
  return {argument, SCMP_CMP_EQ, value, 0};
}
scmp_arg_cmp Masked(unsigned argument, scmp_datum_t mask, scmp_datum_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

class Filter {
 public:
  Filter() : context_(seccomp_init(SCMP_ACT_KILL_PROCESS)) {
    if (context_ == nullptr) {
      error_ = ENOMEM;
    } else {  // for threads, too, that a library may have started
      error_ = -seccomp_attr_set(context_, SCMP_FLTATR_CTL_TSYNC, 1);
    }
  }
  ~Filter() {
    if (context_ != nullptr) seccomp_release(context_);
  }
  Filter(const Filter&) = delete;

  void Allow(const char* name, std::initializer_list<scmp_arg_cmp> compares = {}) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number < 0 || error_ != 0) return;  // of another architecture
    error_ = -seccomp_rule_add_array(context_, SCMP_ACT_ALLOW, number,
                                     static_cast<unsigned>(compares.size()), std::data(compares));
  }
  int Load() {
    if (error_ == 0) error_ = -seccomp_load(context_);
    return error_;
  }

 private:
  const scmp_filter_ctx context_;
  int error_ = 0;
};

// glibc reserves heaps of threads as a whole.
constexpr uint64_t kHeapsBytes = 256 << 20;

void Limit(int resource, rlim_t value) {
  const rlimit limit = {value, value};
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);  // below what it is: always allowed
}

}  // namespace

void BecomeAlone(int first_to_close) {
  // Where memory runs out, better this process than its daemon. Any process may raise its own.
  if (const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    (void)!write(fd, "500", 3);
    close(fd);
  }
  // Of a root daemon's.
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  syscall(SYS_capset, &header, none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "fw-decoder");
  if (!kSanitized) prctl(PR_SET_DUMPABLE, 0);
  close_range(static_cast<unsigned>(first_to_close), ~0U, 0);
}

absl::Status EnterSandbox(int socket, uint64_t memory_bytes, int file) {
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_FSIZE, 0);
  Limit(RLIMIT_NPROC, 0);
  if (kSanitized) return absl::OkStatus();
  // What cannot be written is no data, but each page of it that is looked at takes page tables.
  if (const int64_t mapped = MappedBytes(getpid()); mapped > 0)
    Limit(RLIMIT_AS, static_cast<uint64_t>(mapped) + memory_bytes + kHeapsBytes);
  Limit(RLIMIT_NOFILE, 0);
  Limit(RLIMIT_DATA, memory_bytes);

  const auto descriptor = static_cast<scmp_datum_t>(socket);
  Filter filter;
  for (const char* name : kAllowed) filter.Allow(name);
  filter.Allow("read", {Equals(0, descriptor)});
  filter.Allow("write", {Equals(0, descriptor)});
  if (file >= 0) filter.Allow("pread64", {Equals(0, static_cast<scmp_datum_t>(file))});
  // To /dev/null: what libraries and abort() have to say.
  filter.Allow("write", {Equals(0, STDERR_FILENO)});
  filter.Allow("writev", {Equals(0, STDERR_FILENO)});
  // Private and no stack: RLIMIT_DATA counts nothing else.
  filter.Allow("mmap", {Masked(2, PROT_EXEC, 0), Masked(3, MAP_ANONYMOUS | MAP_TYPE | MAP_GROWSDOWN,
                                                        MAP_ANONYMOUS | MAP_PRIVATE)});
  filter.Allow("mprotect", {Masked(2, PROT_EXEC, 0)});
  filter.Allow("tgkill",
               {Equals(0, static_cast<scmp_datum_t>(getpid())), Equals(2, SIGABRT)});  // abort()
  if (const int error = filter.Load(); error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("no system-call filter (seccomp) can be set here: ", strerror(error),
                     " (errno ", error, "); isolation needs one"));
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
