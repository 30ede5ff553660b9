#include "client/cpp/session.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/address.h"

namespace feedwater {
namespace {

constexpr int kHandshakeMs = 5'000;
constexpr int kArenaMs = 60'000;

absl::Status Errno(absl::string_view what) {
  const int error = errno;
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(what, ": ", std::strerror(error)));
}

absl::Status HungUp() { return absl::UnavailableError("the daemon closed the data socket"); }

template <typename M>
absl::StatusOr<M> As(const char* bytes, size_t size, wire::Type type) {
  M message;
  if (size != sizeof(M)) {
    return absl::InternalError(absl::StrCat("message ", static_cast<int>(type),
                                            " from the daemon has ", size, " bytes instead of ",
                                            sizeof(M)));
  }
  std::memcpy(&message, bytes, sizeof(M));
  return message;
}

absl::Status StatusOf(const wire::Closing& closing) {
  return absl::Status(
      static_cast<absl::StatusCode>(closing.code),
      std::string(closing.message, strnlen(closing.message, sizeof(closing.message))));
}

// Receives one packet into `buffer`, and a file descriptor into `fd` when that is not null.
absl::StatusOr<size_t> ReceivePacket(int socket, int timeout_ms, char* buffer, size_t capacity,
                                     int* fd) {
  pollfd poll_entry = {socket, POLLIN, 0};
  int ready;
  do {
    ready = poll(&poll_entry, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Errno("waiting for the daemon");
  if (ready == 0) return absl::DeadlineExceededError("no message from the daemon");

  iovec vector = {buffer, capacity};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (fd != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  // Where the daemon hung up without reading all that was sent to it, the kernel says so once, with
  // ECONNRESET, ahead of the packets that came before: look again for the last word.
  ssize_t received;
  bool reset = false;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 &&
           (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (received < 0 && errno == ECONNRESET) return HungUp();
  if (received < 0) return Errno("reading the data socket");
  if (received == 0) return HungUp();
  if (fd != nullptr) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        std::memcpy(fd, CMSG_DATA(c), sizeof(int));
    }
  }
  return static_cast<size_t>(received);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Connect(const std::string& address,
                                                          bool* greeted) {
  if (greeted != nullptr) *greeted = false;
  const std::string path = absl::StrCat(address, "/data.sock");
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is longer than the ",
                                                   sizeof(name.sun_path) - 1,
                                                   " bytes a socket path may have"));
  }
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return Errno("making a socket");
  std::shared_ptr<Session> session(new Session(fd));
  // A daemon that is stopped accepts nobody, and its queue may be full: do not wait for ever.
  const timeval patience = {kHandshakeMs / 1000, 0}, for_ever = {0, 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const int connected = connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name));
  if (connected != 0 && errno == EAGAIN)
    return absl::UnavailableError(absl::StrCat("no daemon accepts connections to ", path));
  if (connected != 0 && errno == EACCES) return NoPermission(path);
  // A daemon that stops leaves its socket file behind, or has removed it already: both mean that
  // nobody serves.
  if (connected != 0 && errno == ECONNREFUSED) {
    return absl::UnavailableError(absl::StrCat(
        "no feedwaterd at ", address, ": ", path,
        " is there, but no process listens: the daemon was killed, or is being restarted. "
        "Its log says why (journalctl -u 'feedwaterd@*'); start it with "
        "'feedwaterd --config FILE' or systemctl"));
  }
  if (connected != 0) {
    const absl::Status error = Errno(absl::StrCat("connecting to ", path));
    return errno == ENOENT ? absl::UnavailableError(error.message()) : error;
  }
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof(for_ever));
  wire::Hello hello = {};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = wire::kMajor;
  hello.minor = wire::kMinor;
  // A daemon that turns this client away may have hung up already; its reason can still be read.
  if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) < 0 && errno != EPIPE)
    return absl::UnavailableError(Errno("greeting the daemon").message());

  char buffer[wire::kMaxMessage];
  absl::StatusOr<size_t> size = ReceivePacket(fd, kHandshakeMs, buffer, sizeof(buffer), nullptr);
  if (!size.ok()) return size.status();
  wire::Header header = {};
  std::memcpy(&header, buffer, std::min(*size, sizeof(header)));
  const auto type = static_cast<wire::Type>(header.type);
  if (greeted != nullptr) *greeted = true;
  if (type == wire::Type::kClosing) {
    absl::StatusOr<wire::Closing> closing = As<wire::Closing>(buffer, *size, type);
    return closing.ok() ? StatusOf(*closing) : closing.status();
  }
  absl::StatusOr<wire::Welcome> welcome = As<wire::Welcome>(buffer, *size, type);
  if (!welcome.ok()) return welcome.status();
  if (type != wire::Type::kWelcome || welcome->magic != wire::kMagic) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a feedwaterd data socket"));
  }
  if (welcome->major != wire::kMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the daemon speaks data protocol ", welcome->major, ".", welcome->minor, ", this client ",
        wire::kMajor, ".", wire::kMinor, ": install the same major version of both"));
  }
  session->minor_ = std::min(welcome->minor, wire::kMinor);
  std::memcpy(session->ticket_.data(), welcome->ticket, session->ticket_.size());
  return session;
}

Session::~Session() {
  if (arena_ != nullptr) munmap(arena_, slot_bytes_ * slots_);
  close(fd_);
}

absl::Status Session::CheckProcess() const {
  if (is_of_this_process()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this stream belongs to process ", pid_, ", and this is its forked child ", getpid(),
      ", which would take the parent's batches. Open a stream of its own in the child"));
}

absl::Status Session::MapArena(uint64_t slot_bytes, uint32_t slots, bool protect) {
  char buffer[wire::kMaxMessage];
  int fd = -1;
  absl::StatusOr<size_t> size = ReceivePacket(fd_, kArenaMs, buffer, sizeof(buffer), &fd);
  if (!size.ok()) return size.status();
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) close(fd);
    }
  } closer{fd};
  wire::Header header = {};
  std::memcpy(&header, buffer, std::min(*size, sizeof(header)));
  const auto type = static_cast<wire::Type>(header.type);
  if (type == wire::Type::kClosing) {
    absl::StatusOr<wire::Closing> closing = As<wire::Closing>(buffer, *size, type);
    return closing.ok() ? StatusOf(*closing) : closing.status();
  }
  absl::StatusOr<wire::Arena> arena = As<wire::Arena>(buffer, *size, type);
  if (!arena.ok()) return arena.status();
  if (type != wire::Type::kArena || fd < 0)
    return absl::InternalError("the daemon sent no arena after OpenStream");
  if (arena->slots != slots || arena->slot_bytes != slot_bytes || slots == 0 ||
      slots > wire::kMaxSlots || slot_bytes > UINT64_MAX / slots ||
      arena->arena_bytes != slot_bytes * slots) {
    return absl::InternalError("the arena is not the one that OpenStream announced");
  }
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return absl::InternalError("the arena is not sealed: refusing to map it");
  struct stat info;
  if (fstat(fd, &info) != 0) return Errno("looking at the arena");
  if (static_cast<uint64_t>(info.st_size) != arena->arena_bytes) {
    return absl::InternalError(
        absl::StrCat("the arena has ", info.st_size, " bytes instead of ", arena->arena_bytes));
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (slot_bytes % page != 0)
    return absl::InternalError(absl::StrCat("slots of ", slot_bytes, " bytes are no whole pages"));
  void* mapped =
      mmap(nullptr, arena->arena_bytes, protect ? PROT_NONE : PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return Errno("mapping the arena");
  arena_ = static_cast<std::byte*>(mapped);
  slot_bytes_ = slot_bytes;
  slots_ = slots;
  protect_ = protect;
  return absl::OkStatus();
}

absl::StatusOr<Session::Message> Session::Receive(int timeout_ms) {
  if (absl::Status own = CheckProcess(); !own.ok()) return own;
  char buffer[wire::kMaxMessage];
  absl::StatusOr<size_t> size = ReceivePacket(fd_, timeout_ms, buffer, sizeof(buffer), nullptr);
  if (!size.ok()) return size.status();
  wire::Header header = {};
  std::memcpy(&header, buffer, std::min(*size, sizeof(header)));
  const auto type = static_cast<wire::Type>(header.type);
  switch (type) {
    case wire::Type::kReady: {
      absl::StatusOr<wire::Ready> ready = As<wire::Ready>(buffer, *size, type);
      if (!ready.ok()) return ready.status();
      if (ready->slot >= slots_)
        return absl::InternalError(
            absl::StrCat("the daemon lent slot ", ready->slot, " of ", slots_));
      return Message(*ready);
    }
    case wire::Type::kFailed: {
      if (minor_ == 0) {
        absl::StatusOr<wire::Failed> failed = As<wire::Failed>(buffer, *size, type);
        if (!failed.ok()) return failed.status();
        return Message(wire::FailedWithReason{*failed, 0, 0});
      }
      absl::StatusOr<wire::FailedWithReason> failed =
          As<wire::FailedWithReason>(buffer, *size, type);
      if (!failed.ok()) return failed.status();
      return Message(*failed);
    }
    case wire::Type::kClosing: {
      absl::StatusOr<wire::Closing> closing = As<wire::Closing>(buffer, *size, type);
      if (!closing.ok()) return closing.status();
      return Message(*closing);
    }
    default:
      return absl::InternalError(absl::StrCat("unknown message ", header.type, " from the daemon"));
  }
}

void Session::SendSeek(uint32_t serial, uint64_t epoch, int64_t position) {
  if (!is_of_this_process()) return;
  wire::Seek seek = {};
  seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
  seek.serial = serial;
  seek.epoch = epoch;
  seek.position = position;
  while (send(fd_, &seek, sizeof(seek), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// shutdown() would end the connection for every process that has the socket.
void Session::HangUp() {
  if (is_of_this_process()) shutdown(fd_, SHUT_RDWR);
}

void Session::Lend(uint32_t slot) {
  if (protect_) (void)mprotect(arena_ + slot * slot_bytes_, slot_bytes_, PROT_READ);
}

void Session::Release(uint32_t slot, uint64_t generation) {
  if (!is_of_this_process()) return;  // the parent still has its own
  if (protect_) (void)mprotect(arena_ + slot * slot_bytes_, slot_bytes_, PROT_NONE);
  wire::Release release = {};
  release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
  release.slot = slot;
  release.generation = generation;
  while (send(fd_, &release, sizeof(release), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
  lent_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace feedwater
