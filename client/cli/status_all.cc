#include "client/cli/status_all.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/json_text.h"
#include "client/cli/status_document.h"
#include "client/cpp/address.h"
#include "server/base/escape.h"
#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/base/units.h"

namespace feedwater::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience(3);

// A folder of this user or of root: what others put into /tmp is nothing to connect to. Root sees
// everybody's.
bool IsTrusted(const fs::path& folder) {
  struct stat info {};
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         (info.st_uid == 0 || info.st_uid == geteuid() || geteuid() == 0);
}

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (IsTrusted(it->path())) found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

// The folders that hold daemons' folders: of the host, of this user, and for root of every user.
std::vector<fs::path> Bases() {
  std::vector<fs::path> bases = {"/run/feedwater"};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/')
    bases.push_back(fs::path(runtime) / "feedwater");
  for (const fs::path& user : FoldersIn("/run/user")) bases.push_back(user / "feedwater");
  for (const fs::path& folder : FoldersIn("/tmp")) {
    if (folder.filename() == absl::StrCat("feedwater-", getuid()) ||
        (geteuid() == 0 && folder.filename().string().rfind("feedwater-", 0) == 0)) {
      bases.push_back(folder);
    }
  }
  return bases;
}

struct Place {
  std::string address;
  bool is_private = false;  // its clients' own: it ends with them
};

// Whether something listens there. A socket that a killed daemon left does not count.
bool Listens(const std::string& address) {
  const std::string path = absl::StrCat(address, "/control.sock");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return false;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const server::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
         errno == EAGAIN || errno == EACCES;
}

std::vector<Place> FindPlaces(const Context& context) {
  std::vector<std::string> addresses;
  if (!context.address.empty() || !AddressOfEnvironment().empty()) {
    if (const auto named = FindAddress(context.address); named.ok()) addresses.push_back(*named);
  }
  for (const fs::path& base : Bases()) {
    for (const fs::path& folder : FoldersIn(base)) addresses.push_back(folder.string());
    for (const fs::path& folder : FoldersIn(base / "private")) addresses.push_back(folder.string());
  }
  std::vector<Place> places;
  std::set<std::string> seen;
  for (const std::string& address : addresses) {
    std::error_code error;
    const fs::path canonical = fs::canonical(address, error);
    if (!seen.insert(error ? address : canonical.string()).second || !Listens(address)) continue;
    places.push_back({address, fs::is_fifo(fs::path(address) / "lifeline", error)});
  }
  return places;
}

nlohmann::json JobsJson(const v1::GetStatusResponse& status) {
  nlohmann::json jobs = nlohmann::json::array();
  for (const v1::Job& job : status.jobs()) {
    jobs.push_back({{"job", job.job()},
                    {"pipeline", job.pipeline()},
                    {"owner_uid", job.owner_uid()},
                    {"world_size", job.world_size()},
                    {"ranks", job.ranks_size()}});
  }
  return jobs;
}

nlohmann::json DaemonJson(const Place& place, const absl::StatusOr<v1::GetStatusResponse>& status) {
  nlohmann::json daemon = {{"address", place.address},
                           {"kind", place.is_private ? "private" : "shared"}};
  if (!status.ok()) {
    daemon["error"] = {{"code", absl::StatusCodeToString(status.status().code())},
                       {"message", std::string(status.status().message())}};
    return daemon;
  }
  daemon["pid"] = status->pid();
  daemon["version"] = status->version();
  daemon["uptime_s"] = status->uptime_s();
  daemon["cpus"] = std::vector<int>(status->cpus().begin(), status->cpus().end());
  daemon["memory_limit_bytes"] = status->memory_limit_bytes();
  daemon["memory_planned_bytes"] = status->memory_planned_bytes();
  daemon["memory_resident_bytes"] = status->memory_resident_bytes();
  daemon["jobs"] = JobsJson(*status);
  return daemon;
}

std::string JobsText(const v1::GetStatusResponse& status) {
  if (status.jobs().empty()) return "none";
  return absl::StrJoin(status.jobs(), ", ", [](std::string* out, const v1::Job& job) {
    absl::StrAppend(out, server::Escaped(job.job()));
  });
}

// The private ones of this user.
std::vector<std::string> OwnPrivateDaemons(const Context& context) {
  std::vector<std::string> addresses;
  for (const Place& place : FindPlaces(context)) {
    struct stat info {};
    const bool is_mine = lstat(place.address.c_str(), &info) == 0 && info.st_uid == geteuid();
    if (place.is_private && is_mine) addresses.push_back(place.address);
  }
  return addresses;
}

}  // namespace

absl::Status UseOwnDaemon(Context& context, const std::string& command) {
  if (!context.address.empty() || !AddressOfEnvironment().empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> shared = FindAddress("");
  if (!absl::IsUnavailable(shared.status())) return absl::OkStatus();
  const std::vector<std::string> own = OwnPrivateDaemons(context);
  if (own.size() == 1) {
    context.address = own.front();
    std::cerr << "feedwater: no shared daemon is here; asking your private one at "
              << server::Escaped(own.front()) << "\n";
  }
  if (own.size() <= 1) return absl::OkStatus();
  std::string message = absl::StrCat("no shared daemon is here, and ", own.size(),
                                     " private ones of yours; name one of them:");
  for (const std::string& address : own)
    absl::StrAppend(&message, "\n  feedwater ", command, " --address ", address);
  return absl::UnavailableError(message);
}

std::string PrivateDaemonsText(const Context& context, const std::string& address) {
  int64_t count = 0;
  for (const std::string& own : OwnPrivateDaemons(context)) {
    std::error_code error;
    if (!fs::equivalent(own, address, error)) ++count;
  }
  if (count == 0) return "";
  return absl::StrCat(server::FormatCount(count, "private daemon"),
                      " of yours: feedwater status --all\n");
}

absl::Status ShowAllDaemons(const Context& context) {
  nlohmann::json daemons = nlohmann::json::array();
  std::string lines;
  for (const Place& place : FindPlaces(context)) {
    const std::unique_ptr<v1::Control::Stub> control = ConnectControl(place.address);
    absl::StatusOr<v1::GetStatusResponse> status = GetStatus(*control, kPatience);
    if (!status.ok()) status = ExplainNoAnswer(status.status(), place.address);
    daemons.push_back(DaemonJson(place, status));
    const std::string kind = place.is_private ? "private" : "shared";
    const std::string address = server::Escaped(place.address);
    if (!status.ok()) {
      absl::StrAppend(&lines,
                      absl::StrFormat("%-7s %8s %5s %10s  %s  %s\n", kind, "-", "-", "-", address,
                                      server::EscapedLines(status.status().message())));
      continue;
    }
    absl::StrAppend(&lines, absl::StrFormat("%-7s %8d %5d %10s  %s  jobs: %s\n", kind,
                                            status->pid(), status->cpus_size(),
                                            server::FormatBytes(status->memory_limit_bytes()),
                                            address, JobsText(*status)));
  }
  if (context.json) {
    PrintJson(nlohmann::json{{"daemons", daemons}});
  } else if (lines.empty()) {
    std::cout << "no daemon runs where this user can see one\n";
  } else {
    std::cout << Bold(absl::StrFormat("%-7s %8s %5s %10s  %s", "kind", "pid", "cpus", "memory",
                                      "address"))
              << "\n"
              << lines;
  }
  return absl::OkStatus();
}

}  // namespace feedwater::cli
