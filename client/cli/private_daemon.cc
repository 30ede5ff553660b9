#include "client/cli/private_daemon.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/cpus.h"
#include "server/base/escape.h"
#include "server/base/status.h"
#include "server/base/units.h"
#include "server/pipeline/breadcrumbs.h"
#include "server/process.h"
#include "server/service/config.h"

namespace feedwater::cli {

namespace {

// Figures of another machine than that of the file are worth a word.
void UseWhatIsHere(server::Settings* settings) {
  for (const std::string& lacking : settings->lacking)
    std::cerr << "feedwater: not as the file says: " << server::EscapedLines(lacking) << "\n";
  const int64_t available = server::MemoryLimitBytes();
  if (settings->memory_limit_bytes <= available) return;
  std::cerr << "feedwater: with " << server::FormatBytes(available)
            << ", which is what this process has, instead of `memory` = "
            << server::FormatBytes(settings->memory_limit_bytes) << "\n";
  const double share =
      static_cast<double>(available) / static_cast<double>(settings->memory_limit_bytes);
  for (int64_t* part : {&settings->cache_memory_bytes, &settings->seek_index_bytes})
    *part = static_cast<int64_t>(share * static_cast<double>(*part));
  settings->memory_limit_bytes = available;
}

}  // namespace

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
  FW_RETURN_IF_ERROR(LoadPluginsHere(settings));
  UseWhatIsHere(&settings);
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
