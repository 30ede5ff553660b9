#include "server/transport/session.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/shm/crc32c.h"
#include "server/base/clock.h"
#include "server/base/counters.h"
#include "server/transport/daemon_message.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

const Registrar<CounterEntry> kCounters[] = {
    {"handed_over", {"connections that began to provide a source or an op"}},
    {"handshake_timeout", {"connections that opened no stream in time"}},
    {"protocol_unexpected", {"sessions ended for a message at the wrong time"}},
    {"protocol_bad_slot", {"sessions ended for giving back a slot that does not exist"}},
    {"protocol_bad_generation", {"sessions ended for giving back a batch of another time"}},
    {"protocol_not_lent", {"sessions ended for giving back what was not lent"}},
    {"protocol_bad_serial", {"sessions ended for a seek out of order"}},
    {"protocol_descriptors", {"sessions ended for sending file descriptors"}},
    {"send_queue_full", {"sessions ended because the trainer read none of its messages"}},
    {"send_failed", {"sessions ended because the kernel would not take a message"}},
};

// Messages of one client that are read before the next client has its turn.
constexpr int kMessagesPerTurn = 64;
// A seek throws away what was made and disturbs every worker: a program that looks at one batch
// after the other takes as many.
constexpr double kSeeksPerSecond = 1000, kSeeksAtOnce = 200;

bool HungUp(int socket) {
  pollfd event{socket, POLLRDHUP, 0};
  return poll(&event, 1, 0) > 0 && (event.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Violation Unexpected(const char* what, const char* when) {
  return {"protocol_unexpected",
          absl::InvalidArgumentError(absl::StrCat("data protocol: ", what, " ", when))};
}

}  // namespace

Session::Session(Accepted client, const Options& options)
    : id_(options.id),
      ticket_(options.ticket),
      peer_(client.peer),
      asked_(client.asked),
      handshake_ns_(static_cast<int64_t>(options.handshake_seconds * 1e9)),
      doorbell_(options.doorbell),
      reclaimer_(options.reclaimer),
      watch_(options.watch),
      pidfd_(std::move(client.pidfd)),
      socket_(std::move(client.socket)),
      handshake_deadline_ns_(MonotonicNs() + handshake_ns_),
      seeks_(kSeeksPerSecond, kSeeksAtOnce) {}

bool Session::welcomed() const {
  MutexLock lock(&mu_);
  return phase_ != Phase::kGreeting && phase_ != Phase::kClosed;
}

bool Session::open() const {
  MutexLock lock(&mu_);
  return phase_ == Phase::kOpen;
}

SessionCounts Session::Counts() const {
  MutexLock lock(&mu_);
  if (phase_ != Phase::kOpen) return {};
  const int lent = table_.lent(), unread = UnreadBytesLocked();
  const bool is_known = unread >= 0 && ready_bytes_ > 0;
  SessionCounts counts{table_.slots(), is_known ? unread / ready_bytes_ : lent, lent, std::nullopt};
  if (counts.ready < static_cast<int>(std::min(sent_count_, sent_.size())))
    counts.taken = sent_[(sent_count_ - 1 - static_cast<size_t>(counts.ready)) % sent_.size()];
  counts.ready = std::min(counts.ready, lent);
  return counts;
}

int Session::UnreadBytesLocked() const {
  int bytes = 0;
  return ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 ? bytes : -1;
}

int Session::socket_fd() const {
  MutexLock lock(&mu_);
  return socket_.get();
}

// --- opening and closing

void Session::HoldHandshake() {
  MutexLock lock(&mu_);
  if (holds_++ == 0) held_since_ns_ = MonotonicNs();
}

void Session::GoOnWithHandshake() {
  MutexLock lock(&mu_);
  if (--holds_ > 0) return;
  handshake_deadline_ns_ += MonotonicNs() - held_since_ns_;
  if (phase_ == Phase::kWelcomed) doorbell_->Ring();  // it may end sooner than was thought
}

absl::Status Session::Open(const ArenaOptions& options, SessionEvents events) {
  FW_ASSIGN_OR_RETURN(const int64_t bytes, ArenaBytes(options.layout, options.slots));
  HoldHandshake();  // making an arena takes the time it takes
  const auto go_on = absl::MakeCleanup([this] { GoOnWithHandshake(); });
  {
    MutexLock lock(&mu_);
    if (phase_ == Phase::kOpening || phase_ == Phase::kOpen) {
      return absl::FailedPreconditionError(
          "this data connection has a stream already; connect to data.sock once for each stream");
    }
    if (phase_ != Phase::kWelcomed)
      return absl::NotFoundError("the data connection has been closed");
    phase_ = Phase::kOpening;
  }
  absl::StatusOr<std::unique_ptr<Arena>> arena = Arena::Create(
      bytes, options.numa_node, options.budget, options.user_budget, watch_, peer_.uid);

  MutexLock lock(&mu_);
  if (phase_ == Phase::kClosed) {
    return absl::UnavailableError("the data connection was closed while its memory was made");
  }
  if (!arena.ok()) {  // the client may try again with less
    phase_ = Phase::kWelcomed;
    return arena.status();
  }
  arena_ = *std::move(arena);
  layout_ = options.layout;
  slots_ = options.slots;
  sent_.resize(static_cast<size_t>(slots_) + 1);
  checksum_ = options.checksum;
  table_ = SlotTable(options.slots);
  phase_ = Phase::kOpen;
  const Fd client_fd = arena_->TakeClientFd();
  if (!SendLocked(MakeArena(layout_.slot_bytes, slots_), client_fd.get())) {
    return absl::UnavailableError("the data connection was closed before its memory could be sent");
  }
  events_ = std::move(events);
  return absl::OkStatus();
}

absl::StatusOr<Accepted> Session::HandOver(const std::function<void(int socket)>& forget) {
  MutexLock lock(&mu_);
  if (phase_ == Phase::kOpening || phase_ == Phase::kOpen) {
    return absl::FailedPreconditionError(
        "this data connection has a stream already; connect to data.sock once for each");
  }
  if (phase_ != Phase::kWelcomed) return absl::NotFoundError("the data connection has been closed");
  Accepted connection;
  connection.peer = peer_;
  if (pidfd_) {  // which goes when this session is torn down, and not before it is closed
    connection.pidfd = Fd(fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!connection.pidfd)
      return absl::ResourceExhaustedError(ErrnoStatus(errno, "a descriptor").message());
  }
  forget(socket_.get());
  connection.socket = std::move(socket_);
  CloseLocked(absl::OkStatus(), "handed_over", /*tell_client=*/false);
  return connection;
}

void Session::Close(const absl::Status& reason, const char* counter, bool tell_client) {
  MutexLock lock(&mu_);
  CloseLocked(reason, counter, tell_client);
}

void Session::CloseLocked(const absl::Status& reason, const char* counter, bool tell_client) {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  counter_ = counter;
  reason_ = reason;
  if (tell_client) {
    const wire::Closing closing = MakeClosing(reason);
    SendPacket(socket_.get(), &closing, sizeof(closing));
  }
  doorbell_->Ring(id_);
}

std::optional<int64_t> Session::CheckHandshake(int64_t now_ns) {
  MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen || phase_ == Phase::kClosed) return std::nullopt;
  if (holds_ > 0) return now_ns + handshake_ns_;
  if (now_ns < handshake_deadline_ns_) return handshake_deadline_ns_;
  CloseLocked(
      absl::DeadlineExceededError(absl::StrCat(
          "no ", phase_ == Phase::kGreeting ? "HELLO" : "OpenStream with this connection's ticket",
          " within ", handshake_ns_ / 1'000'000, " ms")),
      "handshake_timeout", /*tell_client=*/true);
  return std::nullopt;
}

Session::Ended Session::TearDown() {
  Ended ended;
  SessionEvents events;  // destroyed after the lock is released: they may own anything
  std::shared_ptr<const std::function<void()>> slot_free;
  std::shared_ptr<Arena> arena;
  Fd socket;
  {
    MutexLock lock(&mu_);
    arena = arena_;
    ended.counter = counter_;
    ended.reason = reason_;
    events = std::exchange(events_, {});
    slot_free = std::exchange(slot_free_, nullptr);
    socket = std::move(socket_);
  }
  ended.closed = std::move(events.closed);
  CloseWithoutReset(std::move(socket));
  pidfd_ = Fd();
  if (arena != nullptr) reclaimer_->Discard([arena = std::move(arena)] { arena->LetGo(); });
  return ended;
}

// --- what the client says

bool Session::OnReadable() {
  std::optional<wire::Seek> seek;  // of several seeks only the last matters
  bool pauses = false;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Effects effects;
    {
      MutexLock lock(&mu_);
      pauses = seeks_.empty(MonotonicNs());
      if (pauses || !ReceiveLocked(&effects)) break;
    }
    if (effects.slot_free != nullptr) (*effects.slot_free)();
    if (effects.seek) seek = effects.seek;
  }
  if (!seek) return !pauses;
  std::function<void(uint32_t, uint64_t, int64_t)> on_seek;
  {
    MutexLock lock(&mu_);
    if (phase_ == Phase::kOpen) on_seek = events_.seek;
  }
  if (on_seek) on_seek(seek->serial, seek->epoch, seek->position);
  return !pauses;
}

bool Session::ReceiveLocked(Effects* effects) {
  if (phase_ == Phase::kClosed) return false;
  std::byte packet[wire::kMaxMessage];
  iovec part{packet, sizeof(packet)};
  msghdr header{};  // no room for control data: the kernel drops descriptors that a client sends
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  const ssize_t size = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    if (errno == EINTR) return true;
    if (errno != EAGAIN) CloseLocked(ErrnoStatus(errno, "data socket"), "reclaimed_hangup", false);
    return false;
  }
  if (size == 0 && HungUp(socket_.get())) {  // else an empty packet, which is a message of 0 bytes
    CloseLocked(absl::CancelledError("the client hung up"), "reclaimed_hangup", false);
    return false;
  }
  std::optional<Violation> violation;
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    violation = {"protocol_descriptors",
                 absl::InvalidArgumentError("data protocol: a client sends no file descriptors")};
  } else {
    ClientMessage message =
        ParseClientMessage(absl::MakeSpan(packet, size), (header.msg_flags & MSG_TRUNC) != 0);
    if (auto* bad = std::get_if<Violation>(&message)) violation = std::move(*bad);
    if (auto* hello = std::get_if<wire::Hello>(&message)) violation = HandleLocked(*hello);
    if (auto* release = std::get_if<wire::Release>(&message))
      violation = HandleLocked(*release, effects);
    if (auto* seek = std::get_if<wire::Seek>(&message)) violation = HandleLocked(*seek, effects);
  }
  if (violation) CloseLocked(violation->reason, violation->counter, /*tell_client=*/true);
  return phase_ != Phase::kClosed;
}

std::optional<Violation> Session::HandleLocked(const wire::Hello& hello) {
  if (phase_ != Phase::kGreeting) return Unexpected("HELLO", "a second time");
  phase_ = Phase::kWelcomed;
  const wire::Welcome welcome = MakeWelcome(hello, ticket_);
  minor_ = welcome.minor;
  SendLocked(welcome);
  return std::nullopt;
}

std::optional<Violation> Session::HandleLocked(const wire::Release& release, Effects* effects) {
  if (phase_ != Phase::kOpen) return Unexpected("RELEASE", "before ARENA");
  const auto bad = [&](const char* counter, const auto&... text) {
    return Violation{counter, absl::InvalidArgumentError(absl::StrCat(
                                  "data protocol: RELEASE of slot ", release.slot, ", generation ",
                                  release.generation, ": ", text...))};
  };
  switch (table_.Release(release.slot, release.generation)) {
    case SlotTable::Released::kNoSuchSlot:
      return bad("protocol_bad_slot", "there are ", slots_, " slots");
    case SlotTable::Released::kWrongGeneration:
      return bad("protocol_bad_generation", "the slot's generation is ",
                 table_.generation(static_cast<int>(release.slot)));
    case SlotTable::Released::kNotLent:
      return bad("protocol_not_lent", "the slot has been released");
    case SlotTable::Released::kOk:
      break;
  }
  effects->slot_free = slot_free_;
  return std::nullopt;
}

std::optional<Violation> Session::HandleLocked(const wire::Seek& seek, Effects* effects) {
  if (phase_ != Phase::kOpen) return Unexpected("SEEK", "before ARENA");
  if (seek.serial <= serial_) {
    return Violation{"protocol_bad_serial",
                     absl::InvalidArgumentError(absl::StrCat("data protocol: SEEK with serial ",
                                                             seek.serial, " after ", serial_))};
  }
  serial_ = seek.serial;
  seeks_.Take(1);
  sent_count_ = 0;
  effects->seek = seek;
  return std::nullopt;
}

template <typename M>
bool Session::SendLocked(const M& message, int descriptor) {
  const int error = SendPacket(socket_.get(), &message, sizeof(message), descriptor);
  if (error == 0) return true;
  if (error == EAGAIN) {
    // The queue holds every slot's READY, so this client lets its messages lie.
    CloseLocked(absl::ResourceExhaustedError("the client does not read its messages"),
                "send_queue_full",
                /*tell_client=*/true);
  } else if (error == EPIPE || error == ECONNRESET || error == ENOTCONN) {
    CloseLocked(absl::CancelledError("the client hung up"), "reclaimed_hangup",
                /*tell_client=*/false);
  } else {
    // The kernel's want of memory, as a rule: the client comes back, and its cursor with it.
    CloseLocked(absl::UnavailableError(ErrnoStatus(error, "sending to the client").message()),
                "send_failed", /*tell_client=*/true);
  }
  return false;
}

// --- slots

int Session::Acquire() {
  MutexLock lock(&mu_);
  return phase_ == Phase::kOpen ? table_.Acquire() : -1;
}

void Session::Publish(int slot, const BatchMeta& meta) {
  wire::Ready ready = MakeReady(slot, meta);
  if (checksum_) {  // the slot is still the caller's, no lock is needed
    ready.flags |= wire::kReadyHasCrc;
    ready.crc32c = Checksum(slot, meta.samples);
  }
  MutexLock lock(&mu_);
  if (phase_ != Phase::kOpen) return;
  ready.generation = table_.Lend(slot);
  if (ready.generation == 0) {
    spdlog::error("slot {} was published without being acquired; the batch is not sent", slot);
    return;
  }
  ready.published_ns = MonotonicNs();
  const int before = UnreadBytesLocked();
  if (!SendLocked(ready)) return;
  if (meta.serial == serial_) sent_[sent_count_++ % sent_.size()] = {meta.epoch, meta.step};
  // The client may have read some at the same moment, which makes it less, never more.
  if (before >= 0) ready_bytes_ = std::max(ready_bytes_, UnreadBytesLocked() - before);
}

void Session::Abandon(int slot) {
  std::shared_ptr<const std::function<void()>> slot_free;
  {
    MutexLock lock(&mu_);
    if (!table_.Abandon(slot)) {
      spdlog::error("slot {} was abandoned without being acquired", slot);
      return;
    }
    if (phase_ == Phase::kOpen) slot_free = slot_free_;
  }
  if (slot_free != nullptr) (*slot_free)();
}

void Session::Fail(const BatchMeta& meta, const BatchFailure& failure) {
  wire::FailedWithReason message = MakeFailed(meta, failure);
  MutexLock lock(&mu_);
  if (phase_ != Phase::kOpen) return;
  if (minor_ >= 1) {
    SendLocked(message);
  } else {
    message.failed.header = wire::MakeHeader<wire::Failed>(wire::Type::kFailed);
    SendLocked(message.failed);
  }
}

void Session::OnSlotFree(std::function<void()> wake) {
  auto shared = std::make_shared<const std::function<void()>>(std::move(wake));
  MutexLock lock(&mu_);
  if (phase_ == Phase::kOpen) slot_free_ = std::move(shared);
}

uint32_t Session::Checksum(int slot, int64_t samples) {
  uint32_t crc = 0;
  const int64_t filled = std::min(samples, layout_.batch_size);
  for (const SlotLayout::Output& output : layout_.outputs) {
    const std::byte* const begin = data(slot) + output.offset;
    if (!output.field.is_ragged()) {
      crc = wire::Crc32c(crc, begin, filled * output.sample_bytes);
      continue;
    }
    const auto* offsets = reinterpret_cast<const int64_t*>(data(slot) + output.offsets_offset);
    const int64_t row_bytes = output.sample_bytes / output.field.max_rows;
    crc = wire::Crc32c(crc, begin, offsets[filled] * row_bytes);
    crc = wire::Crc32c(crc, offsets, (filled + 1) * sizeof(int64_t));
  }
  return crc;
}

}  // namespace feedwater::server
