// A daemon inside this process, with a configuration's pipelines, roots, CPUs and memory but a
// runtime folder of its own that goes when it does: for commands that measure what the daemon would
// do where none runs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/local_pipeline.h"
#include "server/daemon.h"

namespace feedwater::cli {

class PrivateDaemon {
 public:
  static absl::StatusOr<PrivateDaemon> Start(ConfigSource config);
  PrivateDaemon(PrivateDaemon&&) = default;
  ~PrivateDaemon();

  const std::string& address() const { return folder_; }
  const server::Settings& settings() const { return daemon_->settings(); }

 private:
  PrivateDaemon() = default;
  std::string folder_;
  std::unique_ptr<server::Daemon> daemon_;
};

}  // namespace feedwater::cli
