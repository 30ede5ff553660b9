#include "server/service/systemd.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/base/thread.h"

namespace feedwater::server {

absl::StatusOr<ActivatedSockets> TakeActivatedSockets() {
  ActivatedSockets sockets;
  char** names = nullptr;
  int count = sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  if (count < 0) return ErrnoStatus(-count, "sd_listen_fds");
  absl::Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    int fd = SD_LISTEN_FDS_START + i;
    bool control = sd_is_socket_unix(fd, SOCK_STREAM, 1, nullptr, 0) > 0;
    bool data = sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, nullptr, 0) > 0;
    if (control && sockets.control < 0) {
      sockets.control = fd;
    } else if (data && sockets.data < 0) {
      sockets.data = fd;
    } else {
      status = absl::InvalidArgumentError(
          absl::StrCat("systemd passed a socket '", names == nullptr ? "" : names[i],
                       "' that is neither the control (ListenStream) nor the data socket "
                       "(ListenSequentialPacket)"));
    }
  }
  for (int i = 0; names != nullptr && names[i] != nullptr; ++i) free(names[i]);
  free(names);
  if (!status.ok()) return status;
  if ((sockets.control < 0) != (sockets.data < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("systemd passed only the ", sockets.control < 0 ? "data" : "control",
                     " socket; the .socket unit needs ListenStream= and ListenSequentialPacket="));
  }
  return sockets;
}

void WarnUnlessAt(int fd, const std::string& path) {
  if (fd < 0 || sd_is_socket_unix(fd, 0, -1, path.c_str(), 0) != 0) return;
  spdlog::warn("systemd passed a socket that is not {}, where clients look for it", path);
}

void NotifyReady(const std::string& status) {
  sd_notify(0, absl::StrCat("READY=1\nSTATUS=", status).c_str());
}

void NotifyReloading() {
  sd_notify(0,
            absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", MonotonicNs() / 1000, "\nSTATUS=reloading")
                .c_str());
}

void NotifyStopping() { sd_notify(0, "STOPPING=1\nSTATUS=draining"); }

Watchdog::Watchdog(std::function<bool()> healthy) : healthy_(std::move(healthy)) {
  uint64_t period_us = 0;
  if (sd_watchdog_enabled(0, &period_us) <= 0 || period_us == 0) return;
  auto thread = StartThread("the watchdog", [this, period_us] {
    pthread_setname_np(pthread_self(), "fw-watchdog");
    Run(period_us);
  });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {  // systemd will end this process then, and start it again
    spdlog::error("{}", std::string(thread.status().message()));
  }
}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Run(uint64_t period_us) {
  for (;;) {
    if (healthy_()) sd_notify(0, "WATCHDOG=1");
    MutexLock lock(&mu_);
    if (stop_) return;
    changed_.WaitWithTimeout(&mu_, absl::Microseconds(static_cast<int64_t>(period_us / 3)));
    if (stop_) return;
  }
}

}  // namespace feedwater::server
