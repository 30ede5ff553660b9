// What feedwaterd and systemd say to each other: sockets that systemd opened, readiness, the
// watchdog. Everything here does nothing when the daemon was not started by systemd.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace feedwater::server {

// Sockets of feedwaterd@.socket, by FileDescriptorName= (control, data) or else by type; -1 where
// there is none.
struct ActivatedSockets {
  int control = -1;
  int data = -1;
};
absl::StatusOr<ActivatedSockets> TakeActivatedSockets();

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
