// A daemon without threads: the product's sessions in front of SimulatedWorkers, driven one call at
// a time. What its threads would do stands here as steps, so that a schedule decides who comes
// first: the data socket's thread looks at one client, it buries closed sessions, a gRPC thread
// opens a stream, and attaches it.
//
// Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "server/transport/doorbell.h"
#include "server/transport/session.h"
#include "tests/simulation/simulated_workers.h"
#include "tests/simulation/watched_pool.h"

namespace feedwater::simulation {

class SimulatedDaemon {
 public:
  struct Connection {
    std::shared_ptr<server::Session> session;
    std::shared_ptr<WatchedPool> pool;
    std::shared_ptr<server::Stream> stream;
    std::optional<Wish> wish;  // opened, not attached yet
    std::string job;
    int64_t rank = 0;
    struct EarlySeek {
      uint32_t serial;
      uint64_t epoch;
      int64_t position;
    };
    std::optional<EarlySeek> early_seek;
    // The releases that the client has sent and the session has not read, in their order; -1 stands
    // for every other message.
    std::deque<int> unread;
    bool gone = false;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  // `violation` hears what must not happen.
  SimulatedDaemon(std::mt19937_64* random, std::function<void(std::string)> violation);
  ~SimulatedDaemon();

  ConnectionPtr Accept(int socket);  // the daemon's end of a socket pair
  // OpenStream in its two halves; what comes between them is the schedule's.
  absl::Status Open(const ConnectionPtr& connection, Wish wish);
  absl::Status Attach(const ConnectionPtr& connection);

  SimulatedWorkers& workers() { return workers_; }

  // One step of the data socket's thread each.
  bool LookAt(const ConnectionPtr& connection);
  bool TearDown();
  void ExpireHandshakes();

  // What must hold between any two steps.
  void Check();
  // Ends every session and ticket as SIGTERM does; afterwards no slot may be in use.
  void Drain();

  const std::vector<ConnectionPtr>& connections() const { return connections_; }

 private:
  void OnSeek(Connection* connection, uint32_t serial, uint64_t epoch, int64_t position);
  void OnClosed(Connection* connection);

  const std::function<void(std::string)> violation_;
  const std::shared_ptr<server::Doorbell> doorbell_;
  const std::shared_ptr<server::Reclaimer> reclaimer_;
  const std::shared_ptr<server::MemoryBudget> budget_;
  SimulatedWorkers workers_;
  std::vector<ConnectionPtr> connections_, torn_down_;
  uint64_t next_id_ = 1;
};

}  // namespace feedwater::simulation
