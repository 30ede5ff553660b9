// Threads, time, random numbers, and the calls that libc has no name for.
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/fault_injection.h"

using feedwater::faults::Fails;
using feedwater::faults::Hit;
using feedwater::faults::inside;
using feedwater::faults::Next;
using feedwater::faults::Rule;
using feedwater::faults::Shortened;

extern "C" {

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

}  // extern "C"
