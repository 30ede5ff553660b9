// Makes system calls of the real feedwaterd fail, from outside: a library to be preloaded.
//
// Why this way: the product needs no seam, and what is tested is the very program that ships. The
// calls stand between the program (or libstdc++) and libc, so a fault looks exactly as if the
// kernel had answered so. io_uring's completions never pass through a call; but liburing's
// functions that enter the ring do, and after them the new completions lie in memory that is mapped
// writable, where a result is replaced before the engine looks. So one rule, `read`, means the same
// for every storage engine.
//
// $FEEDWATER_FAULT_PLAN names a file that the test and this library map: the test writes rules into
// it at any moment, and reads how often each has acted (Board below; faults.py has the other side).
// A rule is one line, a call's name and then key=value:
//
//   errno=N      the call fails so            short=N     at most N bytes of it are done
//   skip=N       the first N go through       count=N     then N are hit (default 1; 0: all)
//   delay_ms=N   first, the call stands still  step_s=N    clock: how far real time jumps
//   path=TEXT    only files whose path has it  thread=TEXT only threads whose name begins so
//   arg=N        only this command, option or system call number
//   every=N      every N-th of those that are left, and not the others
//   after=CALL   not before the first call of that name
//   caller=NAME  only calls from the program or library whose file name begins so; `any`: all.
//                Default: feedwaterd. std::thread's calls come from libstdc++.
//
// Thread-safe. Allocates nothing: rules hit operator new as well.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "server/storage/engine.h"

namespace {

constexpr int kRules = 8;
constexpr int kCallName = 32, kText = 128;

// The file that the test maps too. The rules' text follows.
struct Board {
  std::atomic<uint32_t> generation;     // the test adds 1 when it has written rules
  std::atomic<uint32_t> taken_up;       // the generation that the calls obey
  std::atomic<uint32_t> acted[kRules];  // by rule
  uint32_t text_bytes;
  char text[4000];
};

struct Rule {
  char call[kCallName], after[kCallName];
  char path[kText], thread[kText], caller[kText];
  long error, short_bytes, skip, count, delay_ms, step_s, arg, every;
  std::atomic<bool> begun;
  std::atomic<long> seen;
};

Board* board = nullptr;
Rule rules[kRules];
std::atomic<int> rule_count{0};
std::atomic_flag parsing = ATOMIC_FLAG_INIT;
thread_local int inside = 0;  // our own calls are left alone

void ParsePair(Rule* rule, const char* key, const char* value) {
  const long number = strtol(value, nullptr, 0);
  if (strcmp(key, "errno") == 0) rule->error = number;
  if (strcmp(key, "short") == 0) rule->short_bytes = number;
  if (strcmp(key, "skip") == 0) rule->skip = number;
  if (strcmp(key, "count") == 0) rule->count = number;
  if (strcmp(key, "delay_ms") == 0) rule->delay_ms = number;
  if (strcmp(key, "step_s") == 0) rule->step_s = number;
  if (strcmp(key, "arg") == 0) rule->arg = number;
  if (strcmp(key, "every") == 0) rule->every = number;
  if (strcmp(key, "path") == 0) snprintf(rule->path, kText, "%s", value);
  if (strcmp(key, "thread") == 0) snprintf(rule->thread, kText, "%s", value);
  if (strcmp(key, "after") == 0) snprintf(rule->after, kCallName, "%s", value);
  if (strcmp(key, "caller") == 0) snprintf(rule->caller, kText, "%s", value);
}

// Takes up the rules if the test has written new ones.
void TakeUp() {
  const uint32_t generation = board->generation.load(std::memory_order_acquire);
  if (generation == board->taken_up.load(std::memory_order_acquire)) return;
  while (parsing.test_and_set(std::memory_order_acquire)) sched_yield();
  if (generation != board->taken_up.load(std::memory_order_relaxed)) {
    rule_count.store(0);
    int count = 0;
    char text[sizeof(board->text) + 1] = {};
    memcpy(text, board->text, board->text_bytes);
    char *rest = nullptr, *line = strtok_r(text, "\n", &rest);
    for (; line != nullptr && count < kRules; line = strtok_r(nullptr, "\n", &rest)) {
      Rule* rule = &rules[count];
      memset(static_cast<void*>(rule), 0, sizeof(*rule));
      rule->short_bytes = rule->arg = -1;
      rule->count = 1;
      char *more = nullptr, *word = strtok_r(line, " ", &more);
      if (word == nullptr) continue;
      snprintf(rule->call, kCallName, "%s", word);
      snprintf(rule->caller, kText, "feedwaterd");
      while ((word = strtok_r(nullptr, " ", &more)) != nullptr) {
        char* equals = strchr(word, '=');
        if (equals == nullptr) continue;
        *equals = '\0';
        ParsePair(rule, word, equals + 1);
      }
      board->acted[count++].store(0);
    }
    rule_count.store(count, std::memory_order_release);
    board->taken_up.store(generation, std::memory_order_release);
  }
  parsing.clear(std::memory_order_release);
}

__attribute__((constructor)) void Start() {
  const char* path = getenv("FEEDWATER_FAULT_PLAN");
  if (path == nullptr) return;
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* memory = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  syscall(SYS_close, fd);
  if (memory == MAP_FAILED) return;
  board = static_cast<Board*>(memory);
}

bool CallerHas(const Rule& rule, const void* caller) {
  if (caller == nullptr || strcmp(rule.caller, "any") == 0) return true;
  Dl_info info;
  const bool found = dladdr(const_cast<void*>(caller), &info) != 0;
  if (!found || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* name = slash == nullptr ? info.dli_fname : slash + 1;
  return strncmp(name, rule.caller, strlen(rule.caller)) == 0;
}

bool PathHas(const Rule& rule, int fd, const char* path) {
  if (rule.path[0] == '\0') return true;
  char name[32], target[4096];
  if (path == nullptr && fd >= 0) {
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    const long size = syscall(SYS_readlink, name, target, sizeof(target) - 1);
    if (size < 0) return false;
    target[size] = '\0';
    path = target;
  }
  return path != nullptr && strstr(path, rule.path) != nullptr;
}

bool ThreadHas(const Rule& rule) {
  if (rule.thread[0] == '\0') return true;
  char name[32] = {};
  prctl(PR_GET_NAME, name);
  return strncmp(name, rule.thread, strlen(rule.thread)) == 0;
}

struct Call {
  const char* name;
  const void* caller;  // null: the program's, whatever the stack says
  int fd = -1;
  const char* path = nullptr;
  long arg = -1;
};

// The rule that hits this call now, or null.
const Rule* Hit(const Call& call) {
  if (board == nullptr || inside > 0) return nullptr;
  TakeUp();
  const int count = rule_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    Rule& rule = rules[i];
    if (strcmp(rule.after, call.name) == 0) rule.begun.store(true);
    if (strcmp(rule.call, call.name) != 0 || (rule.after[0] != '\0' && !rule.begun.load()))
      continue;
    if (rule.arg >= 0 && rule.arg != call.arg) continue;
    const int error = errno;
    ++inside;
    const bool meant =
        CallerHas(rule, call.caller) && ThreadHas(rule) && PathHas(rule, call.fd, call.path);
    --inside;
    errno = error;
    if (!meant) continue;
    const long number = rule.seen.fetch_add(1);
    if (number < rule.skip) continue;
    if (rule.every > 0 && (number - rule.skip) % rule.every != 0) continue;
    if (rule.count > 0 && number - rule.skip >= rule.count) continue;
    board->acted[i].fetch_add(1);
    if (rule.delay_ms > 0) {
      const timespec time{rule.delay_ms / 1000, rule.delay_ms % 1000 * 1'000'000};
      ++inside;
      syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, nullptr);
      --inside;
    }
    return &rule;
  }
  return nullptr;
}

// True: the call fails with the rule's errno.
bool Fails(const Rule* rule) {
  if (rule == nullptr || rule->error == 0) return false;
  errno = static_cast<int>(rule->error);
  return true;
}
bool Fails(const Call& call) { return Fails(Hit(call)); }

size_t Shortened(const Rule* rule, size_t bytes) {
  if (rule == nullptr || rule->short_bytes < 0) return bytes;
  return static_cast<size_t>(rule->short_bytes) < bytes ? static_cast<size_t>(rule->short_bytes)
                                                        : bytes;
}

template <typename F>
F* Next(const char* name) {
  ++inside;
  void* found = dlsym(RTLD_NEXT, name);
  --inside;
  return reinterpret_cast<F*>(found);
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define NEXT(name) static auto* const next = Next<decltype(::name)>(#name)

extern "C" {

// --- files

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  NEXT(open);
  return Fails({"open", CALLER, -1, path}) ? -1 : next(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  NEXT(openat);
  return Fails({"open", CALLER, -1, path}) ? -1 : next(folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return Fails({"fopen", CALLER, -1, path}) ? nullptr : next(path, mode);
}

ssize_t pread(int fd, void* into, size_t bytes, off_t offset) {
  NEXT(pread);
  const Rule* rule = Hit({"read", CALLER, fd});
  return Fails(rule) ? -1 : next(fd, into, Shortened(rule, bytes), offset);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  NEXT(pwrite);
  const Rule* rule = Hit({"write", CALLER, fd});
  return Fails(rule) ? -1 : next(fd, from, Shortened(rule, bytes), offset);
}

ssize_t write(int fd, const void* from, size_t bytes) {
  NEXT(write);
  const Rule* rule = Hit({"write", CALLER, fd});
  return Fails(rule) ? -1 : next(fd, from, Shortened(rule, bytes));
}

int fsync(int fd) {
  NEXT(fsync);
  return Fails({"fsync", CALLER, fd}) ? -1 : next(fd);
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  return Fails({"rename", CALLER, -1, to}) ? -1 : next(from, to);
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return Fails({"mkdir", CALLER, -1, path}) ? -1 : next(path, mode);
}

int flock(int fd, int operation) {
  NEXT(flock);
  return Fails({"flock", CALLER, fd}) ? -1 : next(fd, operation);
}

int fstat(int fd, struct stat* info) {
  NEXT(fstat);
  return Fails({"fstat", CALLER, fd}) ? -1 : next(fd, info);
}

int fstatat(int folder, const char* path, struct stat* info, int flags) {
  NEXT(fstatat);
  return Fails({"fstatat", CALLER, -1, path}) ? -1 : next(folder, path, info, flags);
}

struct dirent* readdir(DIR* folder) {
  NEXT(readdir);
  return Fails({"readdir", CALLER, dirfd(folder)}) ? nullptr : next(folder);
}

int posix_fadvise(int fd, off_t offset, off_t bytes, int advice) {
  NEXT(posix_fadvise);
  const Rule* rule = Hit({"posix_fadvise", CALLER, fd});
  return Fails(rule) ? static_cast<int>(rule->error) : next(fd, offset, bytes, advice);
}

// --- memory

int memfd_create(const char* name, unsigned flags) noexcept {
  NEXT(memfd_create);
  return Fails({"memfd_create", CALLER, -1, name}) ? -1 : next(name, flags);
}

int inotify_init1(int flags) noexcept {
  NEXT(inotify_init1);
  return Fails({"inotify_init1", CALLER}) ? -1 : next(flags);
}

int inotify_add_watch(int fd, const char* path, uint32_t mask) noexcept {
  NEXT(inotify_add_watch);
  return Fails({"inotify_add_watch", CALLER, -1, path}) ? -1 : next(fd, path, mask);
}

int ftruncate(int fd, off_t bytes) noexcept {
  NEXT(ftruncate);
  return Fails({"ftruncate", CALLER, fd}) ? -1 : next(fd, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  NEXT(fallocate);
  return Fails({"fallocate", CALLER, fd}) ? -1 : next(fd, mode, offset, bytes);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (Fails({"mmap", CALLER, fd})) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

int madvise(void* at, size_t bytes, int advice) noexcept {
  NEXT(madvise);
  return Fails({"madvise", CALLER, -1, nullptr, advice}) ? -1 : next(at, bytes, advice);
}

long mbind(void* at, unsigned long bytes, int mode, const unsigned long* nodes,
           unsigned long max_node, unsigned flags) {
  using F = long(void*, unsigned long, int, const unsigned long*, unsigned long, unsigned);
  static auto* const next = Next<F>("mbind");
  return Fails({"mbind", CALLER}) ? -1 : next(at, bytes, mode, nodes, max_node, flags);
}

void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  NEXT(aligned_alloc);
  return Fails({"aligned_alloc", CALLER}) ? nullptr : next(alignment, bytes);
}

// --- descriptors and sockets

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  NEXT(fcntl);
  return Fails({"fcntl", CALLER, fd, nullptr, command}) ? -1 : next(fd, command, argument);
}

int socket(int domain, int type, int protocol) noexcept {
  NEXT(socket);
  return Fails({"socket", CALLER}) ? -1 : next(domain, type, protocol);
}

int bind(int fd, const struct sockaddr* address, socklen_t size) noexcept {
  NEXT(bind);
  return Fails({"bind", CALLER, fd}) ? -1 : next(fd, address, size);
}

int listen(int fd, int backlog) noexcept {
  NEXT(listen);
  return Fails({"listen", CALLER, fd}) ? -1 : next(fd, backlog);
}

int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  NEXT(accept4);
  return Fails({"accept", CALLER, fd}) ? -1 : next(fd, address, size, flags);
}

int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  NEXT(getsockopt);
  return Fails({"getsockopt", CALLER, fd, nullptr, option}) ? -1
                                                            : next(fd, level, option, value, size);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  NEXT(sendmsg);
  return Fails({"sendmsg", CALLER, fd}) ? -1 : next(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  NEXT(recvmsg);
  return Fails({"recvmsg", CALLER, fd}) ? -1 : next(fd, message, flags);
}

int epoll_create1(int flags) noexcept {
  NEXT(epoll_create1);
  return Fails({"epoll_create1", CALLER}) ? -1 : next(flags);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) noexcept {
  NEXT(epoll_ctl);
  return Fails({"epoll_ctl", CALLER, fd, nullptr, operation}) ? -1
                                                              : next(epoll, operation, fd, event);
}

int epoll_wait(int epoll, struct epoll_event* events, int most, int timeout) {
  NEXT(epoll_wait);
  return Fails({"epoll_wait", CALLER, epoll}) ? -1 : next(epoll, events, most, timeout);
}

int eventfd(unsigned initial, int flags) noexcept {
  NEXT(eventfd);
  return Fails({"eventfd", CALLER}) ? -1 : next(initial, flags);
}

int eventfd_write(int fd, eventfd_t value) {
  NEXT(eventfd_write);
  return Fails({"eventfd_write", CALLER, fd}) ? -1 : next(fd, value);
}

ssize_t getrandom(void* into, size_t bytes, unsigned flags) {
  NEXT(getrandom);
  const Rule* rule = Hit({"getrandom", CALLER});
  return Fails(rule) ? -1 : next(into, Shortened(rule, bytes), flags);
}

// The calls that libc has no name for: the number is `arg`, openat2 is an `open` like the others.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  static auto* const next = Next<long(long, ...)>("syscall");
  if (inside == 0) {
    const bool opens = number == SYS_openat2;
    const char* path = opens ? reinterpret_cast<const char*>(a[1]) : nullptr;
    const char* name = opens ? "open" : "syscall";
    if (opens && (reinterpret_cast<const open_how*>(a[2])->flags & O_DIRECT) != 0 &&
        Fails({"open_direct", CALLER, -1, path})) {
      return -1;
    }
    if (Fails({name, CALLER, -1, path, number})) return -1;
  }
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// --- threads and time

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  NEXT(pthread_create);
  const Rule* rule = Hit({"pthread_create", CALLER});
  return Fails(rule) ? static_cast<int>(rule->error) : next(thread, attributes, run, argument);
}

int pthread_setaffinity_np(pthread_t thread, size_t bytes, const cpu_set_t* cpus) noexcept {
  NEXT(pthread_setaffinity_np);
  const Rule* rule = Hit({"pthread_setaffinity_np", CALLER});
  return Fails(rule) ? static_cast<int>(rule->error) : next(thread, bytes, cpus);
}

int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  static auto* const next = Next<int(clockid_t, struct timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (clock != CLOCK_REALTIME) return result;
  if (const Rule* rule = Hit({"clock", nullptr})) time->tv_sec += rule->step_s;
  return result;
}

// --- io_uring
// liburing's functions give -errno.

int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                               struct io_uring_params* parameters) {
  NEXT(io_uring_queue_init_params);
  const Rule* rule = Hit({"io_uring_setup", CALLER, -1, nullptr, parameters->flags});
  return Fails(rule) ? static_cast<int>(-rule->error) : next(entries, ring, parameters);
}

int io_uring_register(unsigned fd, unsigned operation, const void* argument, unsigned count) {
  NEXT(io_uring_register);
  const Rule* rule = Hit({"io_uring_register", CALLER, -1, nullptr, operation});
  return Fails(rule) ? static_cast<int>(-rule->error) : next(fd, operation, argument, count);
}

// Replaces the results of completions that have come since the last look.
static void Falsify(struct io_uring* ring) {
  // A worker has one ring, the probe another after it.
  thread_local const struct io_uring* last_ring = nullptr;
  thread_local unsigned looked_at = 0;
  const unsigned tail = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);
  const unsigned head = *ring->cq.khead;
  if (last_ring != ring || tail - looked_at > *ring->cq.kring_entries) looked_at = head;
  last_ring = ring;
  if (head - looked_at < *ring->cq.kring_entries) looked_at = head;  // consumed unseen
  for (; looked_at != tail; ++looked_at) {
    io_uring_cqe* cqe = &ring->cq.cqes[looked_at & *ring->cq.kring_mask];
    const auto* op = reinterpret_cast<const feedwater::server::ReadOp*>(cqe->user_data);
    const Rule* rule = Hit({"read", nullptr, -1, op->file->path.c_str()});
    if (rule == nullptr) continue;
    if (rule->error != 0) {
      cqe->res = static_cast<int>(-rule->error);
    } else if (cqe->res > 0) {
      cqe->res = static_cast<int>(Shortened(rule, static_cast<size_t>(cqe->res)));
    }
  }
}

int io_uring_submit_and_wait(struct io_uring* ring, unsigned wanted) {
  NEXT(io_uring_submit_and_wait);
  const Rule* rule = Hit({"io_uring_enter", CALLER});
  if (Fails(rule)) return static_cast<int>(-rule->error);
  const int result = next(ring, wanted);
  Falsify(ring);
  return result;
}

int io_uring_submit_and_get_events(struct io_uring* ring) {
  NEXT(io_uring_submit_and_get_events);
  const Rule* rule = Hit({"io_uring_enter", CALLER});
  if (Fails(rule)) return static_cast<int>(-rule->error);
  const int result = next(ring);
  Falsify(ring);
  return result;
}

int __io_uring_get_cqe(struct io_uring* ring, struct io_uring_cqe** cqe, unsigned submit,
                       unsigned wanted, sigset_t* mask) {
  NEXT(__io_uring_get_cqe);
  const int result = next(ring, cqe, submit, wanted, mask);
  Falsify(ring);
  return result;
}

}  // extern "C"

// --- C++ allocations

static void* Allocate(size_t bytes, const void* caller) {
  if (!Fails({"new", caller})) {
    if (void* memory = malloc(bytes == 0 ? 1 : bytes)) return memory;
  }
  ++inside;  // the exception needs memory of its own
  struct Outside {
    ~Outside() { --inside; }
  } outside;
  throw std::bad_alloc();
}

void* operator new(size_t bytes) { return Allocate(bytes, CALLER); }
void* operator new[](size_t bytes) { return Allocate(bytes, CALLER); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
