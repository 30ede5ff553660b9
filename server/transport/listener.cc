#include "server/transport/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

// Newer than Debian 12's headers; the numbers are those of most architectures, including x86-64 and
// arm64.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16
#endif

namespace feedwater::server {
namespace {

constexpr mode_t kSocketMode = 0660;
// Room for the READYs of all slots, whatever the machine's default is.
constexpr int kSendBufferBytes = 256 << 10;

absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, path);
  }
  if (!S_ISSOCK(file.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is in the way and is no socket; remove it or choose another runtime_dir"));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("replacing the socket ", path));
  }
  return absl::OkStatus();
}

// Clients have no business sending descriptors; the kernel refuses them at the sender where it can
// (6.16). Elsewhere they are dropped when the message is received.
void RefuseDescriptors(int socket) {
  const int off = 0;
  setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

void WatchPeer(Accepted* accepted) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (getsockopt(accepted->socket.get(), SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
    accepted->pidfd = Fd(pidfd);
    return;
  }
  if (errno == ESRCH) {
    accepted->peer_is_dead = true;
    return;
  }
  // Kernel < 6.5. The number may name another process by now, which then only makes the session
  // live until the hang-up; in another PID namespace it is 0 and names nobody.
  if (accepted->peer.pid <= 0) return;
  accepted->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, accepted->peer.pid, 0)));
  if (!accepted->pidfd && errno == ESRCH) accepted->peer_is_dead = true;
}

}  // namespace

Listener::Listener(Fd socket)
    : socket_(std::move(socket)), spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  RefuseDescriptors(socket_.get());
}

Listener::Listener(Listener&& other) noexcept
    : socket_(std::move(other.socket_)),
      spare_(std::move(other.spare_)),
      path_(std::exchange(other.path_, {})),  // the file goes with one of them only
      device_(other.device_),
      inode_(other.inode_) {}

absl::StatusOr<Listener> Listener::Bind(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the socket path ", path, " has ", path.size(), " bytes; Unix sockets allow 1 to ",
        sizeof(address.sun_path) - 1, ": choose a shorter runtime_dir"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  FW_RETURN_IF_ERROR(RemoveStaleSocket(path));
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return ErrnoStatus(errno, "making the data socket");
  // The mode of the unbound socket becomes the file's, less the umask: at no moment is the file
  // open to more people.
  if (fchmod(socket.get(), kSocketMode) != 0)
    return ErrnoStatus(errno, "fchmod of the data socket");
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("binding ", path));
  }
  Listener listener(std::move(socket));
  struct stat file;
  if (lstat(path.c_str(), &file) == 0) {
    listener.path_ = path;
    listener.device_ = file.st_dev;
    listener.inode_ = file.st_ino;
  }
  if (chmod(path.c_str(), kSocketMode) != 0)
    return ErrnoStatus(errno, absl::StrCat("chmod of ", path));
  if (listen(listener.fd(), SOMAXCONN) != 0)
    return ErrnoStatus(errno, absl::StrCat("listening on ", path));
  return listener;
}

absl::StatusOr<Listener> Listener::Adopt(int fd) {
  Fd socket(fd);
  int type = 0, listening = 0, domain = 0;
  socklen_t size = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("the data socket that was passed as descriptor ", fd));
  }
  if (domain != AF_UNIX || type != SOCK_SEQPACKET || listening == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd,
                     " is no listening SOCK_SEQPACKET Unix socket; in the .socket unit it is "
                     "ListenSequentialPacket="));
  }
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return ErrnoStatus(errno, "the data socket that was passed");
  }
  return Listener(std::move(socket));
}

Listener::~Listener() {
  struct stat file;
  if (!path_.empty() && lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ &&
      file.st_ino == inode_) {
    unlink(path_.c_str());
  }
}

absl::StatusOr<std::optional<Accepted>> Listener::Accept() {
  Accepted accepted;
  while (true) {
    accepted.socket = Fd(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.socket) break;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return std::nullopt;
    const int error = errno;
    if (error == EMFILE || error == ENFILE) {
      spare_ = Fd();
      Fd turned_away(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC));
      turned_away = Fd();
      spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return absl::ResourceExhaustedError(ErrnoStatus(error, "accepting a client").message());
  }
  RefuseDescriptors(accepted.socket.get());
  setsockopt(accepted.socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
             sizeof(kSendBufferBytes));
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(accepted.socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED of a client");
  }
  accepted.peer = {credentials.uid, credentials.gid, credentials.pid};
  WatchPeer(&accepted);
  return accepted;
}

}  // namespace feedwater::server
