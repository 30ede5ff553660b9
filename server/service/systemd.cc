#include "server/service/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/base/thread.h"

namespace feedwater::server {
namespace {

// The protocol is a few environment variables, which systemd promises to keep as they are
// (sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3)). libsystemd would bring five libraries.
constexpr int kFirstPassed = 3;

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// Whether a variable of systemd's is meant for this process.
bool IsForUs(const char* name) { return Variable(name) == absl::StrCat(getpid()); }

// Does nothing where nobody listens.
void Notify(const std::string& state) {
  const std::string path = Variable("NOTIFY_SOCKET");
  sockaddr_un address = {};
  if (path.size() < 2 || path.size() >= sizeof(address.sun_path)) return;
  if (path[0] != '/' && path[0] != '@') return;
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const timeval patience{5, 0};  // a supervisor that does not read holds up nobody for good
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  (void)sendto(fd, state.data(), state.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size()));
  close(fd);
}

// Where a Unix socket is bound; false for anything else.
bool UnixPath(int fd, std::string* path) {
  sockaddr_un address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      address.sun_family != AF_UNIX)
    return false;
  const size_t bytes = length - std::min<size_t>(length, offsetof(sockaddr_un, sun_path));
  *path = std::string(address.sun_path, strnlen(address.sun_path, bytes));
  return true;
}

bool IsListening(int fd, int type) {
  int is_type = 0, listens = 0;
  socklen_t length = sizeof(int);
  std::string path;
  return UnixPath(fd, &path) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &is_type, &length) == 0 &&
         is_type == type && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 &&
         listens != 0;
}

}  // namespace

absl::StatusOr<ActivatedSockets> TakeActivatedSockets() {
  ActivatedSockets sockets;
  int count = 0;
  const bool is_given = IsForUs("LISTEN_PID") && !Variable("LISTEN_FDS").empty();
  if (is_given && (!absl::SimpleAtoi(Variable("LISTEN_FDS"), &count) || count < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("systemd passed '", Variable("LISTEN_FDS"), "' sockets: no number"));
  }
  const std::vector<std::string> names = absl::StrSplit(Variable("LISTEN_FDNAMES"), ':');
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  absl::Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    const int fd = kFirstPassed + i;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return ErrnoStatus(errno, "sockets from systemd");
    const bool control = IsListening(fd, SOCK_STREAM), data = IsListening(fd, SOCK_SEQPACKET);
    if (control && sockets.control < 0) {
      sockets.control = fd;
    } else if (data && sockets.data < 0) {
      sockets.data = fd;
    } else {
      status = absl::InvalidArgumentError(absl::StrCat(
          "systemd passed a socket '", i < static_cast<int>(names.size()) ? names[i] : "",
          "' that is neither the control (ListenStream) nor the data socket "
          "(ListenSequentialPacket)"));
    }
  }
  if (!status.ok()) return status;
  if ((sockets.control < 0) != (sockets.data < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("systemd passed only the ", sockets.control < 0 ? "data" : "control",
                     " socket; the .socket unit needs ListenStream= and ListenSequentialPacket="));
  }
  return sockets;
}

void WarnUnlessAt(int fd, const std::string& path) {
  std::string bound;
  if (fd < 0 || !UnixPath(fd, &bound) || bound == path) return;
  spdlog::warn("systemd passed a socket that is not {}, where clients look for it", path);
}

void NotifyReady(const std::string& status) { Notify(absl::StrCat("READY=1\nSTATUS=", status)); }

void NotifyReloading() {
  Notify(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", MonotonicNs() / 1000, "\nSTATUS=reloading"));
}

void NotifyStopping() { Notify("STOPPING=1\nSTATUS=draining"); }

Watchdog::Watchdog(std::function<bool()> healthy) : healthy_(std::move(healthy)) {
  uint64_t period_us = 0;
  if (!absl::SimpleAtoi(Variable("WATCHDOG_USEC"), &period_us) || period_us == 0) return;
  if (!Variable("WATCHDOG_PID").empty() && !IsForUs("WATCHDOG_PID")) return;
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
    if (healthy_()) Notify("WATCHDOG=1");
    MutexLock lock(&mu_);
    if (stop_) return;
    changed_.WaitWithTimeout(&mu_, absl::Microseconds(static_cast<int64_t>(period_us / 3)));
    if (stop_) return;
  }
}

}  // namespace feedwater::server
