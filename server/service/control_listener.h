// Accepts connections on control.sock and decides who may speak to the gRPC server, before it has
// read a byte.
//
// gRPC's own local credentials authenticate nobody, so the server never listens itself: this thread
// accepts, asks the kernel who the peer is (SO_PEERCRED), checks access, and hands the connection
// to the gate (control_gate.h), which counts it. A connection whose access is still being looked up
// waits here.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/storage/roots.h"
#include "server/transport/connection_limits.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

class ControlListener {
 public:
  struct Options {
    std::string socket_path;
    int listen_fd = -1;  // given by systemd; -1: bind socket_path
    AccessCheck access;
    AccountOf account_of;     // null: everybody's is their own
    ConnectionLimits limits;  // of connections that wait for their access to be looked up
    // Takes the connection over, or says which limit it is over.
    std::function<absl::Status(Fd connection, const PeerIdentity& peer, uid_t account)> admit;
  };
  // Binds the socket; connections wait in the kernel's queue until Start.
  static absl::StatusOr<std::unique_ptr<ControlListener>> Create(Options options);
  ~ControlListener() { Stop(); }

  absl::Status Start();
  // Accepts nothing more and removes the socket (one of systemd's stays). Connections that were
  // handed over live on.
  void Stop();
  std::map<std::string, uint64_t> counters() const ABSL_LOCKS_EXCLUDED(mu_);
  // Asks again about the connections whose access is being looked up.
  void Reconsider();

 private:
  ControlListener(Options options, Fd listener, Fd epoll, Fd wake)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)) {
    made_ = options_.listen_fd < 0 && lstat(options_.socket_path.c_str(), &socket_) == 0;
  }
  void Run();
  void AcceptSome();
  void Admit(Fd connection);
  // The log is limited for each account.
  void Refuse(const PeerIdentity& peer, uid_t account, const char* counter,
              const std::string& reason);
  void ReconsiderWaiting();
  int MillisecondsToWait() const;
  void Count(const char* name) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Fd listener_;
  struct stat socket_ {};  // as it was made
  bool made_ = false;
  const Fd epoll_, wake_;
  std::thread thread_;
  bool stopped_ = false;
  std::atomic<bool> stop_{false}, reconsider_{false};

  // Of the thread alone.
  struct Waiting {
    Fd connection;
    uid_t account;
    int64_t deadline_ns;
  };
  std::vector<Waiting> waiting_;  // for the answer to whether they may connect

  mutable Mutex mu_;
  std::map<std::string, uint64_t> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
