#include "client/cli/private_daemon.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/pipeline/breadcrumbs.h"
#include "server/process.h"
#include "server/service/config.h"

namespace feedwater::cli {

absl::StatusOr<PrivateDaemon> PrivateDaemon::Start(ConfigSource config) {
  std::string folder = (std::filesystem::temp_directory_path() / "feedwater-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    return server::ErrnoStatus(errno, absl::StrCat("making ", folder));
  PrivateDaemon made;
  made.folder_ = folder;
  config.overrides.push_back(absl::StrCat("runtime_dir=", folder));
  FW_ASSIGN_OR_RETURN(server::Settings settings, LoadConfig(config));
  // What is left in a folder of somebody else the daemon could not replace; and one that a daemon
  // uses, its notes of crashes above all, is that daemon's.
  const std::string& state_dir = settings.config.state_dir;
  if (!IsOwnFolder(state_dir) || server::Breadcrumbs::AreInUse(state_dir)) {
    config.overrides.push_back(absl::StrCat("state_dir=", folder, "/state"));
    FW_ASSIGN_OR_RETURN(settings, LoadConfig(config));
  }
  FW_RETURN_IF_ERROR(server::LoadPlugins(settings));
  server::RaiseFileLimit();
  FW_ASSIGN_OR_RETURN(made.daemon_, server::Daemon::Start(std::move(settings)));
  return made;
}

PrivateDaemon::~PrivateDaemon() {
  daemon_.reset();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace feedwater::cli
