// One client on the data socket, from accept to the end of its descriptors; once it is open, also
// the SlotPool that the pipeline fills.
//
//   GREETING -HELLO-> WELCOMED -Open()-> OPENING -arena sent-> OPEN
//   any of them -hang-up, death, violation, Close()-> CLOSED -TearDown()-> gone
//
// Any thread may close a session: that stops all traffic at once and rings for the server's thread,
// which alone tears down: closes the descriptors and tells the service. The shared memory goes
// then, too; its addresses stay until the last owner of this object (a worker that still writes,
// for instance) lets go.
//
// Thread safety: every method, except those marked "server's thread". No callback is made with the
// lock held. Under the lock there are only system calls that do not wait (send and recv with
// MSG_DONTWAIT).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "proto/shm/wire.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/base/token_bucket.h"
#include "server/batch/slot_pool.h"
#include "server/transport/arena.h"
#include "server/transport/arena_watch.h"
#include "server/transport/client_message.h"
#include "server/transport/data_server.h"
#include "server/transport/doorbell.h"
#include "server/transport/listener.h"
#include "server/transport/reclaimer.h"
#include "server/transport/slot_table.h"

namespace feedwater::server {

class Session final : public SlotPool {
 public:
  struct Options {
    uint64_t id = 0;
    SessionTicket ticket{};
    double handshake_seconds = 5;
    std::shared_ptr<Doorbell> doorbell;
    std::shared_ptr<Reclaimer> reclaimer;
    ArenaWatch* watch = nullptr;  // outlives the session's opening; null: see Arena::Create
  };
  Session(Accepted client, const Options& options);

  uint64_t id() const { return id_; }
  const SessionTicket& ticket() const { return ticket_; }
  const PeerIdentity& peer() const { return peer_; }
  const PeerIdentity& asked() const { return asked_; }  // as Accepted has it

  bool welcomed() const;  // has been told its ticket, and is not closed
  bool open() const;      // has an arena, and is not closed
  // In between a call for it is worked on, and the time for the handshake stands still. By turns,
  // also several at a time; what is left of the time is the same afterwards, so that no number of
  // calls makes it longer.
  void HoldHandshake();
  void GoOnWithHandshake();
  SessionCounts Counts() const;

  // Makes the arena and sends it. As DataServer::OpenSession.
  absl::Status Open(const ArenaOptions& options, SessionEvents events);
  // As DataServer::HandOver; `forget` is called with the socket before anybody else has it.
  absl::StatusOr<Accepted> HandOver(const std::function<void(int socket)>& forget);
  // Ends the session, the first reason wins. `counter`: the name it is counted under.
  // `tell_client`: send CLOSING.
  void Close(const absl::Status& reason, const char* counter, bool tell_client);

  // --- server's thread ---
  int socket_fd() const;
  int pidfd() const { return pidfd_.get(); }
  // Reads and obeys what has arrived, a bounded number of messages.
  // False: so many seeks came that nothing is to be read for kPauseNs.
  bool OnReadable();
  static constexpr int64_t kPauseNs = 10'000'000;
  // When the handshake has to be over (MonotonicNs); nullopt when it is. Closes the session when
  // that time has passed.
  std::optional<int64_t> CheckHandshake(int64_t now_ns);
  struct Ended {
    const char* counter = "";
    absl::Status reason;
    std::function<void()> closed;  // null when the session was never open
  };
  // Closes the descriptors and gives the arena up. REQUIRES: closed, and out of the epoll set.
  // Once.
  Ended TearDown();

  // --- SlotPool ---
  int slots() const override { return slots_; }
  int Acquire() override;
  std::byte* data(int slot) override { return arena_->data() + slot * layout_.slot_bytes; }
  void Publish(int slot, const BatchMeta& meta) override;
  void Abandon(int slot) override;
  void Fail(const BatchMeta& meta, const BatchFailure& failure) override;
  void OnSlotFree(std::function<void()> wake) override;

 private:
  enum class Phase { kGreeting, kWelcomed, kOpening, kOpen, kClosed };
  // What is to be done about a message once the lock is released.
  struct Effects {
    std::shared_ptr<const std::function<void()>> slot_free;
    std::optional<wire::Seek> seek;
  };

  bool ReceiveLocked(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // false: nothing left
  std::optional<Violation> HandleLocked(const wire::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Violation> HandleLocked(const wire::Release& release, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Violation> HandleLocked(const wire::Seek& seek, Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends one message, with a descriptor unless it is -1. A failure closes the session.
  template <typename M>
  bool SendLocked(const M& message, int descriptor = -1) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked(const absl::Status& reason, const char* counter, bool tell_client)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What of the daemon's messages the client has not read, as the kernel accounts for it; -1 where
  // it does not tell.
  int UnreadBytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t Checksum(int slot, int64_t samples);

  // Constant.
  const uint64_t id_;
  const SessionTicket ticket_;
  const PeerIdentity peer_, asked_;
  const int64_t handshake_ns_;
  const std::shared_ptr<Doorbell> doorbell_;
  const std::shared_ptr<Reclaimer> reclaimer_;
  ArenaWatch* const watch_;

  // The server's thread's.
  Fd pidfd_;

  // Set before anybody has this as a SlotPool, constant from then on.
  std::shared_ptr<Arena> arena_;
  SlotLayout layout_;
  int slots_ = 0;
  bool checksum_ = false;

  mutable Mutex mu_;
  Fd socket_ ABSL_GUARDED_BY(mu_);
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kGreeting;
  int64_t handshake_deadline_ns_ ABSL_GUARDED_BY(mu_);
  int holds_ ABSL_GUARDED_BY(mu_) = 0;  // of the handshake's time
  int64_t held_since_ns_ ABSL_GUARDED_BY(mu_) = 0;
  SlotTable table_ ABSL_GUARDED_BY(mu_);
  uint32_t serial_ ABSL_GUARDED_BY(mu_) = 0;  // of the last seek
  uint16_t minor_ ABSL_GUARDED_BY(mu_) = 0;   // the minor version that both sides speak
  TokenBucket seeks_ ABSL_GUARDED_BY(mu_);
  int ready_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // a READY in the kernel's account; 0: not known yet
  // Where the last batches came from that were sent since the last seek, around a ring.
  std::vector<SessionCounts::BatchAt> sent_ ABSL_GUARDED_BY(mu_);
  size_t sent_count_ ABSL_GUARDED_BY(mu_) = 0;
  SessionEvents events_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const std::function<void()>> slot_free_ ABSL_GUARDED_BY(mu_);
  const char* counter_ ABSL_GUARDED_BY(mu_) = "";
  absl::Status reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
