// What feedwaterd and systemd say to each other: sockets that systemd opened, readiness, the
// watchdog. Everything here does nothing when the daemon was not started by systemd. Reads and
// unsets environment variables: not while other threads do.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace feedwater::server {

// Sockets of feedwaterd@.socket, told apart by their types: the names of two sockets of one unit
// are the same. Both or none (-1). Their modes are systemd's; who is served is decided for each
// connection by its user, as with sockets of the daemon's own.
struct ActivatedSockets {
  int control = -1;
  int data = -1;

  bool given() const { return control >= 0; }
};
// InvalidArgument when they are not one listening socket of each type.
absl::StatusOr<ActivatedSockets> TakeActivatedSockets();
// Says in the log when a socket that systemd passed is not where clients look for it.
void WarnUnlessAt(int fd, const std::string& path);

void NotifyReady(const std::string& status);
void NotifyReloading();
void NotifyStopping();

// Feeds systemd's watchdog as long as `healthy` says so, three times in its period.
class Watchdog {
 public:
  explicit Watchdog(std::function<bool()> healthy);
  ~Watchdog();

 private:
  void Run(uint64_t period_us) ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<bool()> healthy_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace feedwater::server
