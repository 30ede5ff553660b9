// How other threads tell the data server's thread that a session is to be torn down: an eventfd in
// its epoll set and the numbers of the sessions. Shared, since a worker may hold a session's slots
// for longer than the server lives. Thread-safe.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/status.h"

namespace feedwater::server {

class Doorbell {
 public:
  static absl::StatusOr<std::shared_ptr<Doorbell>> Create() {
    Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd) return ErrnoStatus(errno, "eventfd");
    return std::shared_ptr<Doorbell>(new Doorbell(std::move(fd)));
  }

  int fd() const { return fd_.get(); }
  void Ring() { (void)!eventfd_write(fd_.get(), 1); }  // a full counter wakes as well
  void Ring(uint64_t session) {
    {
      MutexLock lock(&mu_);
      waiting_.push_back(session);
    }
    Ring();
  }
  // Everything rung for since the last answer.
  std::vector<uint64_t> Answer() {
    eventfd_t count;
    (void)!eventfd_read(fd_.get(), &count);
    MutexLock lock(&mu_);
    return std::exchange(waiting_, {});
  }

 private:
  explicit Doorbell(Fd fd) : fd_(std::move(fd)) {}

  const Fd fd_;
  Mutex mu_;
  std::vector<uint64_t> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
