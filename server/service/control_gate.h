// Stands between the clients of control.sock and gRPC, and passes their bytes on.
//
//   client ══ control.sock ══ ControlGate ══ socket pair ══ gRPC
//
// gRPC keeps what a client sends and does not read in memory that no budget of ours sees, and gives
// everybody's calls to one pool of threads. So a user pays here for what gRPC would let everybody
// pay for: each user has an account of connections, calls in progress, new calls, frames and bytes
// a second. Who is over the rates is read more slowly; who is over a number, or sends what no
// client of gRPC sends (http2_frames.h), is told so by a GOAWAY and closed. Answers wait here, up
// to a bound; behind it nothing more is read from a client that does not take its answers. A client
// that hangs up, or shuts one direction down, is gone.
//
// gRPC tells a service no user id, but the name of the peer's socket: the gate's end of each pair
// has a name of its own (an autobound abstract one), from which WhoIs knows the user.
//
// Thread-safe. One thread pumps all connections and never blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/fd.h"
#include "server/base/mutex.h"
#include "server/service/gate_connection.h"
#include "server/transport/connection_limits.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

class ControlGate {
 public:
  struct Options {
    ConnectionLimits limits;            // the handshake: to say that it speaks HTTP/2
    std::function<void(int fd)> serve;  // takes gRPC's end of the pair over
    // Whether a peer may use the daemon, by the list of access as it is now; null: everybody may.
    AccessCheck access;
    // Told about CPU time that a user's connections and calls take, by an estimate; may be null.
    std::function<void(uid_t account, int64_t cpu_ns)> charge;
  };
  static absl::StatusOr<std::unique_ptr<ControlGate>> Create(Options options);
  ~ControlGate();

  absl::Status Start();
  void Stop();  // closes every connection

  // Takes over a connection, non-blocking, that may speak. `account` is the user who pays.
  // ResourceExhausted names the limit that it is over.
  absl::Status Admit(Fd client, const PeerIdentity& peer, uid_t account) ABSL_LOCKS_EXCLUDED(mu_);

  // Who pays for a call, from the peer that gRPC names. Nothing: the client has gone. For accounts
  // only: rights come from tickets (control_service.h).
  std::optional<uid_t> WhoIs(const std::string& grpc_peer) const ABSL_LOCKS_EXCLUDED(mu_);

  // The list of access has changed: whoever calls by a connection from before is asked about again.
  void AccessHasChanged() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the client that calls may do so still; nullopt: its groups are being looked up.
  std::optional<absl::Status> CheckAccess(const std::string& grpc_peer) ABSL_LOCKS_EXCLUDED(mu_);

  std::map<std::string, uint64_t> counters() const ABSL_LOCKS_EXCLUDED(mu_);
  // Begun, or given up, so far.
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  struct New {
    Fd client;
    PeerIdentity peer;
    uid_t account;
  };
  struct Caller {
    PeerIdentity peer;
    uid_t account;
    uint64_t admitted_by = 0;  // the version of the list of access
  };

  ControlGate(Options options, std::string name_prefix, Fd epoll, Fd wake);
  void Run();
  void TakeNew() ABSL_LOCKS_EXCLUDED(mu_);
  void Pump(GateConnection* connection);
  bool MustWait(GateConnection* connection, int64_t now_ns);
  bool ReadClient(GateConnection* connection, int64_t now_ns);
  bool AdmitFrames(GateConnection* connection, int64_t now_ns);
  void TakeCalls(GateConnection* connection, double calls);
  bool ConnectGrpc(GateConnection* connection);
  void Refuse(GateConnection* connection, absl::string_view why);
  void Close(GateConnection* connection) ABSL_LOCKS_EXCLUDED(mu_);
  void Watch(GateConnection* connection);
  void Unwatch(GateConnection* connection);
  void LookAtTimes();
  int TimeoutMs() const;
  void Count(const char* name) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::string name_prefix_;  // of the abstract names by which gRPC tells connections apart
  std::atomic<uint64_t> calls_{0};
  const Fd epoll_, wake_;
  std::thread thread_;

  // Of the thread alone.
  std::map<uint64_t, std::unique_ptr<GateConnection>> connections_;
  std::map<uid_t, GateUser> users_;
  std::set<uint64_t> timed_;  // connections that wait for a moment, not for bytes
  uint64_t next_id_ = 1;      // 0 is the wake-up
  std::vector<char> read_buffer_;

  mutable Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<New> new_ ABSL_GUARDED_BY(mu_);
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uid_t, int> open_of_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Caller> callers_ ABSL_GUARDED_BY(mu_);  // by the name that gRPC has
  uint64_t access_version_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, uint64_t> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
