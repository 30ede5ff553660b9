// The data socket: accepts clients on data.sock, checks who they are, lends them slots and takes
// them back.
//
// A session begins with HELLO/WELCOME, which gives the client a 128-bit ticket. The service shows
// that ticket here (it came back over gRPC) to learn which user and process the call belongs to,
// and then gives the session its arena. One thread serves all sessions with epoll; it never
// decodes, reads datasets or waits for anything else. A session ends when its socket hangs up, when
// its process dies (pidfd), when it breaks the protocol, or when the service closes it; then the
// daemon gives its memory up at once, and counts it until the client has let go of it, too.
//
// Thread safety: all public calls may come from any thread. Events and the access check are called
// on the server's thread, never with a lock of this class held; whatever they wait for, every
// session waits for. They may call this class, but not destroy it. README.md has the whole picture.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/base/fd.h"
#include "server/base/memory_budget.h"
#include "server/base/status.h"
#include "server/batch/slot_layout.h"
#include "server/batch/slot_pool.h"
#include "server/transport/connection_limits.h"

namespace feedwater::server {

using SessionTicket = std::array<uint8_t, 16>;

struct PeerIdentity {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
};

struct Accepted {
  Fd socket;
  Fd pidfd;  // none where the kernel can give none: then only the hang-up tells of the client's end
  PeerIdentity peer;
  PeerIdentity asked;  // whose access was asked: peer.uid is the account that pays from then on
  bool peer_is_dead = false;  // its process ended before it was accepted
};

// Who may connect. Checked for both sockets with SO_PEERCRED. Never waits: nullopt means that the
// answer is being looked up; Reconsider tells that it may be there.
using AccessCheck = std::function<std::optional<absl::Status>(const PeerIdentity&)>;

// Whose limits a user's connections count against: its own, as a rule.
using AccountOf = std::function<uid_t(uid_t)>;

struct ArenaOptions {
  SlotLayout layout;
  int slots = 4;
  int numa_node = -1;
  bool checksum = false;
  std::shared_ptr<MemoryBudget> budget;
  std::shared_ptr<MemoryBudget> user_budget;  // of the client's user; may be null
};

struct SessionEvents {
  // The client is quick: both may be called before OpenSession has returned.
  // Of several seeks that arrive together only the last is told.
  std::function<void(uint32_t serial, uint64_t epoch, int64_t position)> seek;
  std::function<void()> closed;  // exactly once; the session's slots are gone for the client
};

struct SessionCounts {
  int slots = 0;
  int ready = 0;  // of those lent: messages that the client has not read yet
  int lent = 0;   // published, and not released by the client yet
  struct BatchAt {
    uint64_t epoch = 0;
    int64_t step = 0;
  };
  // The last batch whose message the client has read. Nothing: none since it came, or since its
  // last seek.
  std::optional<BatchAt> taken;
};

class DataServer {
 public:
  struct Options {
    std::string socket_path;
    int listen_fd = -1;       // given by systemd, then closed by this class; -1: bind socket_path
    AccessCheck access;       // null: everybody
    AccountOf account_of;     // null: everybody's is their own
    ConnectionLimits limits;  // the handshake: from accept to OpenSession, HoldHandshake apart
  };
  static absl::StatusOr<std::unique_ptr<DataServer>> Create(Options options);
  ~DataServer();  // closes every session with UNAVAILABLE

  // Who holds this ticket. Unavailable when no live connection does.
  absl::StatusOr<PeerIdentity> Identify(const SessionTicket& ticket) const;
  // While the result lives, the time for the handshake stands still: a call with this ticket is
  // worked on, and may wait for something slow, such as an index being built. Null when no live
  // connection has the ticket.
  std::shared_ptr<void> HoldHandshake(const SessionTicket& ticket) const;
  // What the access check says of this connection's user now. It let the connection in, and
  // whoever is to get more by it asks again: access may have been withdrawn since.
  std::optional<absl::Status> CheckAccess(const SessionTicket& ticket) const;
  // Makes the arena (memfd, allocated, bound to its node, prefaulted, sealed), sends it, and
  // returns the slots. Slow for large arenas: called on a gRPC thread. FailedPrecondition when the
  // session has one; ResourceExhausted over the budget.
  absl::StatusOr<std::shared_ptr<SlotPool>> OpenSession(const SessionTicket& ticket,
                                                        const ArenaOptions& options,
                                                        SessionEvents events);
  // Ends the session and gives its connection away, which is open still: whoever has it speaks with
  // the client from now on. FailedPrecondition when it has a stream; else as Identify.
  absl::StatusOr<Accepted> HandOver(const SessionTicket& ticket);
  void CloseSession(const SessionTicket& ticket, const absl::Status& reason);
  // What a session leaves, which may be much memory, ends on a thread that serves nobody.
  void Discard(std::shared_ptr<void> left);
  SessionCounts Counts(const SessionTicket& ticket) const;
  int sessions(uid_t uid) const;  // with an arena
  int arenas() const;             // that exist, also those that clients hold beyond their sessions
  // Asks again about the connections whose access is being looked up.
  void Reconsider();
  // Protocol errors, reclaimed sessions, refused connections, by the names that README.md lists.
  std::map<std::string, uint64_t> counters() const;

 private:
  DataServer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What an open session will reserve: slots * slot bytes, rounded to pages. InvalidArgument on
// overflow.
absl::StatusOr<int64_t> ArenaBytes(const SlotLayout& layout, int slots);

}  // namespace feedwater::server
