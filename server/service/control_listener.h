// Accepts connections on control.sock and decides who may speak to the gRPC server, before it has
// read a byte.
//
// gRPC's own local credentials authenticate nobody, so the server never listens itself: this thread
// accepts, asks the kernel who the peer is (SO_PEERCRED), checks access and limits, and hands the
// descriptor over. To know when a connection is gone it keeps a duplicate of each descriptor and
// waits for its hang-up. A client that hangs up, also with one direction only, has its connection
// shut down; it counts until gRPC has closed its descriptor, which is asked of the kernel: the
// number then stands for nothing, or for another socket.
#pragma once

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
#include "server/transport/data_server.h"

namespace feedwater::server {

class ControlListener {
 public:
  struct Options {
    std::string socket_path;
    int listen_fd = -1;  // given by systemd; -1: bind socket_path
    AccessCheck access;
    AccountOf account_of;  // null: everybody's is their own
    int max_connections = 1024;
    int max_connections_per_uid = 64;
    double access_seconds = 5;  // how long a connection may wait for its access to be looked up
    int max_descriptor = kNoDescriptorLimit;
    std::function<void(int fd)> serve;  // takes the descriptor over
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
        wake_(std::move(wake)) {}
  void Run();
  void AcceptSome();
  void Admit(Fd connection);
  void Enter(Fd connection, uid_t account);
  void Refuse(const PeerIdentity& peer, const char* counter, const std::string& reason);
  void ReconsiderWaiting();
  void OnHangUp(int key);
  void SettleClosing();
  int Connections() const;
  void Leave(uid_t account);  // one connection of it less
  int MillisecondsToWait() const;
  void Count(const char* name) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Fd listener_;
  const Fd epoll_, wake_;
  std::thread thread_;
  bool stopped_ = false;
  std::atomic<bool> stop_{false}, reconsider_{false};

  // Of the thread alone.
  struct Given {  // what gRPC has: its descriptor, and the socket that it was
    int fd;
    uint64_t inode;
    uid_t account;
  };
  struct Watched {
    Fd duplicate;
    Given given;
  };
  struct Waiting {
    Fd connection;
    uid_t account;
    int64_t deadline_ns;
  };
  std::map<int, Watched> watched_;
  std::vector<Given> closing_;    // hung up; gRPC has not closed them yet
  std::vector<Waiting> waiting_;  // for the answer to whether they may connect
  int64_t closing_pause_ms_ = 0;  // before gRPC's descriptors are looked at again
  std::map<uid_t, int> connections_;

  mutable Mutex mu_;
  std::map<std::string, uint64_t> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
