#include "server/service/access.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/escape.h"

namespace feedwater::server {

absl::StatusOr<uid_t> FindUser(const std::string& name) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  passwd user{};
  std::vector<char> buffer;
  auto lookup = [&](passwd* entry, char* data, size_t size, passwd** found) {
    return getpwnam_r(name.c_str(), entry, data, size, found);
  };
  if (WithEntry(lookup, &user, &buffer)) return user.pw_uid;
  return absl::NotFoundError(absl::StrCat("there is no user '", Escaped(name),
                                          "' on this machine; a number is accepted too"));
}

absl::StatusOr<gid_t> FindGroup(const std::string& name) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  group entry{};
  std::vector<char> buffer;
  auto lookup = [&](group* into, char* data, size_t size, group** found) {
    return getgrnam_r(name.c_str(), into, data, size, found);
  };
  if (WithEntry(lookup, &entry, &buffer)) return entry.gr_gid;
  return absl::NotFoundError(absl::StrCat("there is no group '", Escaped(name),
                                          "' on this machine; a number is accepted too"));
}

void AccessControl::Replace(AccessList list) {
  MutexLock lock(&mu_);
  list_ = std::move(list);
  coming_.reset();
  directory_.Forget();
}

void AccessControl::Narrow(AccessList coming) {
  MutexLock lock(&mu_);
  coming_ = std::move(coming);
}

std::optional<bool> AccessControl::IsOn(const AccessList& list, const PeerIdentity& peer) {
  if (list.users.count(peer.uid) > 0 || list.groups.count(peer.gid) > 0) return true;
  if (list.groups.empty()) return false;
  const std::optional<std::set<gid_t>> groups = directory_.Groups(peer.uid);
  if (!groups) return std::nullopt;
  return std::any_of(groups->begin(), groups->end(),
                     [&](gid_t id) { return list.groups.count(id) > 0; });
}

std::optional<absl::Status> AccessControl::Check(const PeerIdentity& peer) {
  if (peer.uid == 0 || peer.uid == geteuid()) return absl::OkStatus();
  MutexLock lock(&mu_);
  std::optional<bool> is_admitted = IsOn(list_, peer);
  if (coming_ && is_admitted != false) {
    const std::optional<bool> stays = IsOn(*coming_, peer);
    if (stays != true) is_admitted = stays;
  }
  if (!is_admitted) return std::nullopt;
  if (*is_admitted) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "user ", peer.uid,
      " may not use this daemon; the administrator can add the user to 'access.users' or "
      "one of the user's groups to 'access.groups' in feedwater.yaml, and reload it"));
}

}  // namespace feedwater::server
