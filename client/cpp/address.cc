#include "client/cpp/address.h"

#include <grp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace feedwater {
namespace {

constexpr const char* kNoPermissionUrl = "feedwater/no-permission";

std::string ControlSocket(const std::string& folder) {
  return absl::StrCat(folder, "/control.sock");
}

enum class Found { kNothing, kSocket, kClosed };

Found LookInto(const std::string& folder) {
  struct stat info;
  if (stat(ControlSocket(folder).c_str(), &info) != 0)
    return errno == EACCES ? Found::kClosed : Found::kNothing;
  return S_ISSOCK(info.st_mode) ? Found::kSocket : Found::kNothing;
}

// The NUMA node where this process ran when it was asked first: all its streams look for one
// daemon.
unsigned OwnNode() {
  static std::mutex mutex;
  static pid_t asked = 0;
  static unsigned node = 0;
  std::lock_guard lock(mutex);
  unsigned cpu = 0;
  if (asked == getpid()) return node;  // a forked child may be bound to another one
  asked = getpid();
  if (getcpu(&cpu, &node) != 0) node = 0;
  return node;
}

// Whether a daemon listens there, also one that does not let this user in.
bool Listens(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/data.sock");
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return false;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool listens = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
                       errno == EAGAIN || errno == EACCES;  // the former: its queue is full
  close(fd);
  return listens;
}

// The name of the group that the socket belongs to, or its folder where that is closed; "" when
// neither can be seen.
std::string GroupOf(const std::string& socket_path) {
  for (const std::string& path : {socket_path.substr(0, socket_path.rfind('/')), socket_path}) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) continue;
    group entry, *found = nullptr;
    std::array<char, 16'384> text;
    if (getgrgid_r(info.st_gid, &entry, text.data(), text.size(), &found) == 0 && found != nullptr)
      return found->gr_name;
  }
  return "";
}

// Whether only this user or root can have put a daemon there: all may write to /tmp.
bool IsTrusted(const std::string& folder) {
  if (!absl::StartsWith(folder, "/tmp/")) return true;
  for (const std::string& path : {folder, folder.substr(0, folder.rfind('/'))}) {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || (info.st_uid != 0 && info.st_uid != getuid()))
      return false;
  }
  return true;
}

}  // namespace

std::string AddressOfEnvironment() {
  const char* given = std::getenv("FEEDWATER_ADDRESS");
  return given == nullptr ? "" : given;
}

std::vector<std::string> CandidateAddresses() {
  if (std::string given = AddressOfEnvironment(); !given.empty()) return {std::move(given)};
  const unsigned node = OwnNode();
  std::vector<unsigned> nodes = {node};
  if (node != 0) nodes.push_back(0);
  std::vector<std::string> folders;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  for (unsigned n : nodes) {
    if (runtime != nullptr && *runtime != '\0')
      folders.push_back(absl::StrCat(runtime, "/feedwater/", n));
    folders.push_back(absl::StrCat("/run/feedwater/", n));
    folders.push_back(absl::StrCat("/tmp/feedwater-", getuid(), "/", n));
  }
  return folders;
}

absl::StatusOr<std::string> FindAddress(absl::string_view address) {
  const bool is_given = !address.empty() || !AddressOfEnvironment().empty();
  std::vector<std::string> tried =
      address.empty() ? CandidateAddresses() : std::vector<std::string>{std::string(address)};
  if (is_given) {
    // Absolute: the program may change its folder before a reconnect. `..` stays: behind a link it
    // is the parent of what the link names.
    std::error_code error;
    std::filesystem::path path;
    for (const auto& part : std::filesystem::absolute(tried[0], error)) {
      if (!part.empty() && part != ".") path /= part;
    }
    if (!error) tried[0] = path.string();
    // A socket stands for its folder.
    const size_t slash = tried[0].rfind('/');
    const absl::string_view name = absl::string_view(tried[0]).substr(slash + 1);
    if (slash != std::string::npos && (name == "data.sock" || name == "control.sock"))
      tried[0].resize(slash);
  }
  return FindAmong(tried, is_given);
}

absl::StatusOr<std::string> FindAmong(const std::vector<std::string>& folders, bool is_given) {
  std::vector<std::string> there;
  std::string closed;
  for (const std::string& folder : folders) {
    if (!is_given && !IsTrusted(folder)) continue;
    const Found found = LookInto(folder);
    if (found == Found::kSocket) there.push_back(folder);
    if (found == Found::kClosed && closed.empty()) closed = folder;
  }
  if (there.size() > 1) {
    const auto listening = std::find_if(there.begin(), there.end(), Listens);
    if (listening != there.end()) return *listening;
  }
  if (!there.empty()) return there.front();
  if (!closed.empty()) return NoPermission(ControlSocket(closed));
  return absl::UnavailableError(
      absl::StrCat("no feedwaterd at ", absl::StrJoin(folders, ", "),
                   " (no control.sock there): start one with 'feedwaterd --config FILE', or give "
                   "its runtime_dir as the address or in FEEDWATER_ADDRESS"));
}

absl::Status NoPermission(const std::string& socket_path) {
  const std::string group = GroupOf(socket_path);
  absl::Status error = absl::PermissionDeniedError(absl::StrCat(
      "permission denied: user ", getuid(), " may not connect to ", socket_path,
      ". Cure: the daemon's configuration lets this user in (access: {users: [...], groups: "
      "[...]}), or this user joins ",
      group.empty() ? "a group that may" : absl::StrCat("group '", group, "'"),
      " and logs in anew. A daemon that is starting lets others in only when it serves"));
  error.SetPayload(kNoPermissionUrl, absl::Cord("1"));
  return error;
}

bool IsNoPermission(const absl::Status& status) {
  return status.GetPayload(kNoPermissionUrl).has_value();
}

}  // namespace feedwater
