#include "tests/testing/fake_trainer.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace feedwater::testing {

FakeTrainer::FakeTrainer(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

FakeTrainer::FakeTrainer(FakeTrainer&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      arena_(other.arena_),
      arena_fd_(std::exchange(other.arena_fd_, -1)),
      data_(std::exchange(other.data_, nullptr)) {}

FakeTrainer::~FakeTrainer() {
  DropArena();
  Close();
}

void FakeTrainer::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void FakeTrainer::DropArena() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), arena_.arena_bytes);
  if (arena_fd_ >= 0) close(arena_fd_);
  data_ = nullptr;
  arena_fd_ = -1;
}

bool FakeTrainer::SendBytes(const void* bytes, size_t size, const std::vector<int>& descriptors) {
  iovec part{const_cast<void*>(bytes), size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  const size_t rights_bytes = descriptors.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(rights_bytes));
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(rights_bytes);
    std::memcpy(CMSG_DATA(rights), descriptors.data(), rights_bytes);
  }
  return sendmsg(fd_, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool FakeTrainer::HasInput(int timeout_ms) {
  pollfd event{fd_, POLLIN, 0};
  return poll(&event, 1, timeout_ms) > 0;
}

std::optional<FakeTrainer::Packet> FakeTrainer::Receive(int timeout_ms) {
  if (!HasInput(timeout_ms)) return std::nullopt;
  Packet packet;
  packet.bytes.resize(wire::kMaxMessage + 1);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(fd_, &header, MSG_CMSG_CLOEXEC);
  if (size <= 0) return std::nullopt;
  packet.bytes.resize(size);
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&packet.fd, CMSG_DATA(rights), sizeof(int));
  }
  return packet;
}

std::optional<std::array<uint8_t, 16>> FakeTrainer::Hello() {
  wire::Hello hello{};
  hello.header = wire::MakeHeader<wire::Hello>(wire::Type::kHello);
  hello.magic = wire::kMagic;
  hello.major = wire::kMajor;
  hello.minor = wire::kMinor;
  if (!Send(hello)) return std::nullopt;
  const std::optional<Packet> answer = Receive();
  if (!answer || !answer->Is(wire::Type::kWelcome)) return std::nullopt;
  std::array<uint8_t, 16> ticket;
  std::memcpy(ticket.data(), answer->As<wire::Welcome>().ticket, ticket.size());
  return ticket;
}

bool FakeTrainer::ReceiveArena() {
  const std::optional<Packet> packet = Receive();
  return packet && MapArena(*packet);
}

bool FakeTrainer::MapArena(const Packet& packet) {
  if (!packet.Is(wire::Type::kArena) || packet.fd < 0) return false;
  arena_ = packet.As<wire::Arena>();
  arena_fd_ = packet.fd;
  void* data = mmap(nullptr, arena_.arena_bytes, PROT_READ, MAP_SHARED, arena_fd_, 0);
  if (data == MAP_FAILED) return false;
  data_ = static_cast<const std::byte*>(data);
  return true;
}

std::optional<wire::Ready> FakeTrainer::Next() {
  const std::optional<Packet> packet = Receive();
  if (!packet || !packet->Is(wire::Type::kReady)) return std::nullopt;
  return packet->As<wire::Ready>();
}

bool FakeTrainer::Release(uint32_t slot, uint64_t generation) {
  wire::Release release{};
  release.header = wire::MakeHeader<wire::Release>(wire::Type::kRelease);
  release.slot = slot;
  release.generation = generation;
  return Send(release);
}

bool FakeTrainer::Seek(uint32_t serial, uint64_t epoch, int64_t position) {
  wire::Seek seek{};
  seek.header = wire::MakeHeader<wire::Seek>(wire::Type::kSeek);
  seek.serial = serial;
  seek.epoch = epoch;
  seek.position = position;
  return Send(seek);
}

std::optional<wire::Closing> FakeTrainer::Closing() {
  while (const std::optional<Packet> packet = Receive()) {
    if (packet->fd >= 0) close(packet->fd);
    if (packet->Is(wire::Type::kClosing)) return packet->As<wire::Closing>();
  }
  return std::nullopt;
}

}  // namespace feedwater::testing
