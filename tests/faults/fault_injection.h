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
// it at any moment, and reads how often each has acted (struct Board of fault_injection.cc;
// faults.py has the other side).
//
// Here is what a call asks of the rules. The calls themselves are in a file for each kind:
// file_faults, memory_faults, socket_faults, system_faults and uring_faults.
//
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
#pragma once

#include <dlfcn.h>
#include <stddef.h>

#include <atomic>

// The calls are seen by the program, nothing else is.
#pragma GCC visibility push(hidden)

namespace feedwater::faults {

inline constexpr int kCallName = 32, kText = 128;

struct Rule {
  char call[kCallName], after[kCallName];
  char path[kText], thread[kText], caller[kText];
  long error, short_bytes, skip, count, delay_ms, step_s, arg, every;
  std::atomic<bool> begun;
  std::atomic<long> seen;
};

struct Call {
  const char* name;
  const void* caller;  // null: the program's, whatever the stack says
  int fd = -1;
  const char* path = nullptr;
  long arg = -1;
};

extern constinit thread_local int inside;  // above 0: our own calls, which are left alone

// The rule that hits this call now, or null.
const Rule* Hit(const Call& call);

// True: the call fails with the rule's errno.
bool Fails(const Rule* rule);
inline bool Fails(const Call& call) { return Fails(Hit(call)); }

// What is left of `bytes`.
size_t Shortened(const Rule* rule, size_t bytes);

// The function that this library stands before.
template <typename F>
F* Next(const char* name) {
  ++inside;
  void* found = dlsym(RTLD_NEXT, name);
  --inside;
  return reinterpret_cast<F*>(found);
}

}  // namespace feedwater::faults

#pragma GCC visibility pop

#define CALLER __builtin_return_address(0)
#define NEXT(name) static auto* const next = feedwater::faults::Next<decltype(::name)>(#name)
