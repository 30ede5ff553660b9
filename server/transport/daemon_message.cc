#include "server/transport/daemon_message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace feedwater::server {
namespace {

// Unread messages that are thrown away before closing: more than a socket's queue holds.
constexpr int kMaxUnread = 1024;

// Copies text into a zero-terminated field, cut where a UTF-8 character begins. REQUIRES: the field
// is zeroed.
template <size_t N>
void CopyText(absl::string_view text, char (&field)[N]) {
  size_t size = std::min(text.size(), N - 1);
  if (size < text.size()) {
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  }
  if (size > 0) std::memcpy(field, text.data(), size);
}

// Of a text of several lines, such as a traceback, whole lines, and a mark where some are left out.
template <size_t N>
void CopyLines(absl::string_view text, char (&field)[N]) {
  constexpr absl::string_view kMore = "\n[...]";
  const size_t last = text.substr(0, N - 1 - kMore.size()).rfind('\n');
  if (text.size() < N || last == absl::string_view::npos) return CopyText(text, field);
  std::memcpy(field, text.data(), last);
  std::memcpy(field + last, kMore.data(), kMore.size());
}

}  // namespace

wire::Welcome MakeWelcome(const wire::Hello& hello, const SessionTicket& ticket) {
  wire::Welcome welcome{};
  welcome.header = wire::MakeHeader<wire::Welcome>(wire::Type::kWelcome);
  welcome.magic = wire::kMagic;
  welcome.major = wire::kMajor;
  welcome.minor = std::min(hello.minor, wire::kMinor);
  welcome.daemon_pid = getpid();
  std::memcpy(welcome.ticket, ticket.data(), ticket.size());
  return welcome;
}

wire::Arena MakeArena(int64_t slot_bytes, int slots) {
  wire::Arena arena{};
  arena.header = wire::MakeHeader<wire::Arena>(wire::Type::kArena);
  arena.arena_bytes = slot_bytes * slots;
  arena.slot_bytes = slot_bytes;
  arena.slots = slots;
  return arena;
}

wire::Ready MakeReady(int slot, const BatchMeta& meta) {
  wire::Ready ready{};
  ready.header = wire::MakeHeader<wire::Ready>(wire::Type::kReady);
  ready.slot = slot;
  ready.serial = meta.serial;
  ready.epoch = meta.epoch;
  ready.step = meta.step;
  ready.next_position = meta.next_position;
  ready.samples = meta.samples;
  ready.real_samples = meta.real_samples;
  ready.substituted = meta.substituted;
  ready.flags =
      (meta.last_in_epoch ? wire::kReadyLastInEpoch : 0) | (meta.skipped ? wire::kReadySkipped : 0);
  return ready;
}

wire::FailedWithReason MakeFailed(const BatchMeta& meta, const BatchFailure& failure) {
  wire::FailedWithReason message{};
  wire::Failed& failed = message.failed;
  failed.header = wire::MakeHeader<wire::FailedWithReason>(wire::Type::kFailed);
  failed.serial = meta.serial;
  failed.code = static_cast<uint32_t>(failure.status.code());
  failed.epoch = meta.epoch;
  failed.step = meta.step;
  failed.next_position = meta.next_position;
  failed.record = failure.record;
  CopyText(failure.path, failed.path);
  CopyLines(failure.status.message(), failed.message);
  message.reason = static_cast<uint32_t>(failure.reason);
  return message;
}

wire::Closing MakeClosing(const absl::Status& reason) {
  wire::Closing closing{};
  closing.header = wire::MakeHeader<wire::Closing>(wire::Type::kClosing);
  closing.code = static_cast<uint32_t>(reason.code());
  CopyText(reason.message(), closing.message);
  return closing;
}

int SendPacket(int socket, const void* message, size_t size, int descriptor) {
  iovec part{const_cast<void*>(message), size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  while (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

void CloseWithoutReset(Fd socket) {
  // The shutdown keeps more from arriving, and ends the connection even where a forked process has
  // a copy of the descriptor.
  shutdown(socket.get(), SHUT_RDWR);
  char unread;
  for (int i = 0; i < kMaxUnread && recv(socket.get(), &unread, 1, MSG_DONTWAIT | MSG_TRUNC) > 0;
       ++i) {
  }
}

}  // namespace feedwater::server
