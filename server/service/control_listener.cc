#include "server/service/control_listener.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/thread.h"

namespace feedwater::server {
namespace {

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
  uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  if (options_.listen_fd < 0) unlink(options_.socket_path.c_str());
  listener_ = Fd();
}

void ControlListener::Run() {
  for (;;) {
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, 64, -1);
    if (count < 0 && errno != EINTR) {
      spdlog::critical(
          "control.sock: epoll_wait failed (errno {}): no more connections are accepted", errno);
      return;
    }
    for (int i = 0; i < count; ++i) {
      int fd = events[i].data.fd;
      if (fd == wake_.get()) return;
      if (fd == listener_.get()) AcceptAll();
    }
  }
}

void ControlListener::AcceptAll() {
  for (;;) {
    Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      Admit(std::move(connection));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The connection stays in the queue; without a pause this thread would spin until a
      // descriptor is free.
      Count("control_accept_out_of_descriptors");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return;
  }
}

void ControlListener::Admit(Fd connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return Count("control_refused_unknown_peer");
  const PeerIdentity identity{peer.uid, peer.gid, peer.pid};
  if (absl::Status allowed = options_.access(identity); !allowed.ok()) {
    spdlog::warn("control.sock: refused process {}: {}", peer.pid, std::string(allowed.message()));
    return Count("control_refused_access");
  }
  if (absl::Status admitted = options_.admit(std::move(connection), identity); !admitted.ok()) {
    spdlog::warn("control.sock: refused user {}: {}", peer.uid, std::string(admitted.message()));
  }
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
