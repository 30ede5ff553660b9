// The composition root: one running daemon, built bottom-up from its settings and stopped top-down.
//
//   budget -> pipelines -> runtime (workers) -> data socket -> control service -> control socket
//
// What belongs to the process rather than to the daemon (signals, descriptor limit, umask, systemd)
// is program.cc's, so that tests can run a daemon in their own process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/service/access.h"
#include "server/service/catalogue.h"
#include "server/service/config.h"
#include "server/service/control_server.h"
#include "server/service/control_service.h"
#include "server/service/runtime_dir.h"
#include "server/service/subordinate_users.h"
#include "server/service/systemd.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

class Daemon {
 public:
  // Returns when it serves. AlreadyExists when another daemon has the runtime_dir;
  // ResourceExhausted, with the sum, when what it needs to start is over the memory limit.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(Settings settings,
                                                       ActivatedSockets sockets = {});
  ~Daemon() { Stop(); }

  // Tells the clients, closes their streams and ends everything. A dataset that is being opened is
  // given up.
  void Stop();

  // Removes its runtime_dir, and `files`, when it ends: of a daemon that somebody started for
  // himself alone.
  void RemoveFolderAtEnd(std::vector<std::string> files) {
    runtime_dir_->RemoveAtEnd(std::move(files));
  }

  // Takes over the pipelines, roots and access list of new settings; running jobs go on. Names, in
  // the log, the keys that changed and need a restart.
  void Reload(const Settings& settings);

  // False when the workers have had work for a minute without getting on: what the watchdog asks.
  bool Healthy() ABSL_LOCKS_EXCLUDED(mu_);
  std::string Summary() const;  // one line for systemd's status
  const Settings& settings() const { return settings_; }
  // Null: workers make all samples, or it has stopped.
  const std::shared_ptr<DecoderHost>& decoders() const { return decoders_; }

 private:
  explicit Daemon(Settings settings) : settings_(std::move(settings)) {}
  absl::Status Build(ActivatedSockets sockets);
  absl::Status FindDecoderProgram();
  std::shared_ptr<const Breadcrumbs> FindCrashes();
  void LimitUsers(const AccessList& access);
  void RunHousekeeping() ABSL_LOCKS_EXCLUDED(mu_);

  const Settings settings_;
  std::atomic<bool> isolates_images_{false};
  bool sockets_are_systemds_ = false;  // their modes and their removal are systemd's, too
  SubordinateUsers subordinate_users_;
  const AccountOf account_of_ = [this](uid_t uid) { return subordinate_users_.OwnerOf(uid); };
  AccessControl access_{UserDirectory::AskMachine, account_of_};
  std::unique_ptr<RuntimeDir> runtime_dir_;
  std::shared_ptr<MemoryBudget> budget_;
  std::shared_ptr<UserShares> shares_;  // of it
  MemoryReservation program_memory_;    // code, libraries and their heaps
  MemoryReservation control_memory_;    // what gRPC has of all clients
  std::shared_ptr<Cache> cache_;
  std::shared_ptr<BadSampleLog> bad_samples_;
  std::shared_ptr<DecoderHost> decoders_;  // null: workers make all samples
  std::shared_ptr<Providers> providers_;   // outlives the pipelines whose ops it runs
  std::shared_ptr<Catalogue> catalogue_;
  Mutex room_mu_;
  std::weak_ptr<Catalogue> makes_room_ ABSL_GUARDED_BY(room_mu_);  // for workers, providers_
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<ControlService> service_;  // before data_: the sessions' events call it
  std::unique_ptr<DataServer> data_;
  std::unique_ptr<ControlServer> control_;

  Mutex mu_;
  CondVar stopping_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_progress_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t last_progress_ns_ ABSL_GUARDED_BY(mu_) = MonotonicNs();
  std::thread housekeeper_;
};

}  // namespace feedwater::server
