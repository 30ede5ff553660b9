#include "client/cpp/address.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace feedwater {
namespace {

bool HasSocket(const std::string& folder) {
  struct stat info;
  return stat(absl::StrCat(folder, "/control.sock").c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
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

std::vector<std::string> CandidateAddresses() {
  const char* given = std::getenv("FEEDWATER_ADDRESS");
  if (given != nullptr && *given != '\0') return {given};
  unsigned cpu = 0, node = 0;
  if (getcpu(&cpu, &node) != 0) node = 0;
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
  const bool is_given = !address.empty() || std::getenv("FEEDWATER_ADDRESS") != nullptr;
  const std::vector<std::string> tried =
      address.empty() ? CandidateAddresses() : std::vector<std::string>{std::string(address)};
  for (const std::string& folder : tried) {
    if (HasSocket(folder) && (is_given || IsTrusted(folder))) return folder;
  }
  return absl::UnavailableError(
      absl::StrCat("no feedwaterd at ", absl::StrJoin(tried, ", "),
                   " (no control.sock there): start one with 'feedwaterd --config FILE', or give "
                   "its runtime_dir as the address or in FEEDWATER_ADDRESS"));
}

}  // namespace feedwater
