// Does something before and after one chosen look at a path (openat2), as somebody does who turns a
// link and turns it back. Included by one file of a test program: it takes the place of syscall().
#pragma once

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <functional>
#include <utility>

namespace feedwater::server {

// While one of these lives, looks are counted from 0; at `chosen` one, `before` and `after` run.
class PathLooks {
 public:
  explicit PathLooks(int chosen, std::function<void()> before, std::function<void()> after)
      : chosen_(chosen), before_(std::move(before)), after_(std::move(after)) {
    now_ = this;
  }
  ~PathLooks() { now_ = nullptr; }
  PathLooks(const PathLooks&) = delete;
  PathLooks& operator=(const PathLooks&) = delete;

  int looks() const { return looks_; }

  static long Look(const std::function<long()>& call) {
    PathLooks* const here = now_;
    if (here == nullptr || here->looks_.fetch_add(1) != here->chosen_) return call();
    here->before_();
    const long result = call();
    here->after_();
    return result;
  }

 private:
  static inline std::atomic<PathLooks*> now_{nullptr};
  const int chosen_;
  const std::function<void()> before_, after_;
  std::atomic<int> looks_{0};
};

}  // namespace feedwater::server

extern "C" long syscall(long number, ...) noexcept {
  using Call = long (*)(long, ...);
  static const auto real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const auto call = [&] { return real(number, a[0], a[1], a[2], a[3], a[4], a[5]); };
  return number == SYS_openat2 ? feedwater::server::PathLooks::Look(call) : call();
}
