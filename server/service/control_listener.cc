#include "server/service/control_listener.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/base/log_limiter.h"
#include "server/base/thread.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"control_refused_access", {"calls refused to a user who is not in `access`"}},
    {"control_refused_connections_per_uid", {"calls refused over limits.connections_per_uid"}},
    {"control_refused_descriptors",
     {"calls refused to keep descriptors for the daemon's own work"}},
    {"control_refused_unknown", {"calls refused because the user database did not answer in time"}},
    {"control_refused_unknown_peer", {"calls refused because the kernel did not name the user"}},
    {"control_accept_out_of_descriptors", {"calls that waited for a free descriptor"}},
    {"control_refused", {"connections for calls refused by the gate"}},
};

constexpr int kAcceptsPerTurn = 256;  // so that a flood does not hold up who waits

absl::StatusOr<Fd> Listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path ", path, " is too long"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoStatus(errno, "socket");
  // The lock on the folder is ours: a socket that is there was left by a daemon that was killed.
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot bind ", path));
  }
  if (listen(fd.get(), SOMAXCONN) != 0)
    return ErrnoStatus(errno, absl::StrCat("cannot listen on ", path));
  return fd;
}

absl::Status Watch(int epoll, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus(errno, "epoll_ctl");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlListener>> ControlListener::Create(Options options) {
  Fd listener(options.listen_fd);
  if (!listener) {
    FW_ASSIGN_OR_RETURN(listener, Listen(options.socket_path));
  } else {
    int flags = fcntl(listener.get(), F_GETFL);
    if (flags < 0 || fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
      return ErrnoStatus(errno, "fcntl");
  }
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) return ErrnoStatus(errno, "epoll_create1 or eventfd");
  FW_RETURN_IF_ERROR(Watch(epoll.get(), listener.get(), EPOLLIN));
  FW_RETURN_IF_ERROR(Watch(epoll.get(), wake.get(), EPOLLIN));
  return std::unique_ptr<ControlListener>(new ControlListener(
      std::move(options), std::move(listener), std::move(epoll), std::move(wake)));
}

absl::Status ControlListener::Start() {
  FW_ASSIGN_OR_RETURN(thread_, StartThread("the control socket", [this] {
                        pthread_setname_np(pthread_self(), "fw-control");
                        RunSoonAfterWaking();
                        Run();
                      }));
  return absl::OkStatus();
}

void ControlListener::Stop() {
  if (stopped_) return;
  stopped_ = true;
  stop_ = true;
  (void)!eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  struct stat there;  // where a cleaner took the folder, another daemon may have come
  if (made_ && lstat(options_.socket_path.c_str(), &there) == 0 && there.st_dev == socket_.st_dev &&
      there.st_ino == socket_.st_ino) {
    unlink(options_.socket_path.c_str());
  }
  listener_ = Fd();
  waiting_.clear();
}

void ControlListener::Reconsider() {
  reconsider_ = true;
  (void)!eventfd_write(wake_.get(), 1);
}

void ControlListener::Run() {
  for (;;) {
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, 64, MillisecondsToWait());
    if (count < 0 && errno != EINTR) {
      spdlog::critical(
          "control.sock: epoll_wait failed (errno {}): no more connections are accepted", errno);
      return;
    }
    for (int i = 0; i < count; ++i) {
      int fd = events[i].data.fd;
      if (fd == wake_.get()) {
        eventfd_t rung;
        (void)!eventfd_read(wake_.get(), &rung);
      } else {
        AcceptSome();
      }
    }
    if (stop_) return;
    ReconsiderWaiting();
  }
}

void ControlListener::ReconsiderWaiting() {
  const int64_t now = MonotonicNs();
  const bool again = reconsider_.exchange(false);
  for (Waiting& one : std::exchange(waiting_, {})) {
    if (again) {
      const size_t before = waiting_.size();
      Admit(std::move(one.connection));
      if (waiting_.size() > before) waiting_.back().deadline_ns = one.deadline_ns;  // waits on
    } else if (now < one.deadline_ns) {
      waiting_.push_back(std::move(one));
    } else {
      Refuse({one.account, 0, 0}, one.account, "control_refused_unknown",
             "the machine's user database has not returned the user's groups in time");
    }
  }
}

int ControlListener::MillisecondsToWait() const {
  int64_t ms = INT32_MAX;
  const int64_t now = MonotonicNs();
  for (const Waiting& one : waiting_)
    ms = std::min(ms, std::max<int64_t>(0, (one.deadline_ns - now) / 1'000'000 + 1));
  return ms == INT32_MAX ? -1 : static_cast<int>(ms);
}

void ControlListener::AcceptSome() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      Admit(std::move(connection));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The connection stays in the queue; without a pause this thread would spin until a
      // descriptor is free.
      const absl::Status why = ErrnoStatus(errno, "accepting a client");
      Count("control_accept_out_of_descriptors");
      if (ClientLog().Admits("control_accept_out_of_descriptors", LogLimiter::kNoSource))
        spdlog::warn("control.sock: {}", why.ToString());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return;
  }
}

void ControlListener::Refuse(const PeerIdentity& peer, uid_t account, const char* counter,
                             const std::string& reason) {
  Count(counter);
  if (ClientLog().Admits(counter, account)) {
    spdlog::warn("control.sock: refused process {} of user {}: {}", peer.pid, peer.uid, reason);
  }
}

void ControlListener::Admit(Fd connection) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return Count("control_refused_unknown_peer");
  const PeerIdentity peer{credentials.uid, credentials.gid, credentials.pid};
  const uid_t account = options_.account_of ? options_.account_of(peer.uid) : peer.uid;
  // Before access is asked: that may look the number up, and an account can have many of them.
  const auto waiting = std::count_if(waiting_.begin(), waiting_.end(),
                                     [&](const Waiting& one) { return one.account == account; });
  if (waiting >= options_.limits.connections_per_uid) {
    return Refuse(
        peer, account, "control_refused_connections_per_uid",
        absl::StrCat("limits.connections_per_uid = ", options_.limits.connections_per_uid));
  }
  const std::optional<absl::Status> allowed = options_.access(peer);
  if (allowed && !allowed->ok())
    return Refuse(peer, account, "control_refused_access", std::string(allowed->message()));
  if (connection.get() >= options_.limits.max_descriptor)
    return Refuse(peer, account, "control_refused_descriptors",
                  "no descriptor is left for clients");
  if (!allowed) {
    const auto patience_ns = static_cast<int64_t>(options_.limits.handshake_seconds * 1e9);
    waiting_.push_back({std::move(connection), account, MonotonicNs() + patience_ns});
    return;
  }
  const absl::Status admitted = options_.admit(std::move(connection), peer, account);
  if (!admitted.ok()) Refuse(peer, account, "control_refused", std::string(admitted.message()));
}

void ControlListener::Count(const char* name) {
  MutexLock lock(&mu_);
  ++counters_[name];
}

std::map<std::string, uint64_t> ControlListener::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

}  // namespace feedwater::server
