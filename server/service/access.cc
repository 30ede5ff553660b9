#include "server/service/access.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"

namespace feedwater::server {
namespace {

constexpr int64_t kGroupsKeptNs = 60'000'000'000;
constexpr size_t kMaxUsersKept = 4096;

// The name service wants a buffer of unknown size; this one grows up to a size that no honest entry
// reaches.
template <typename Entry, typename Lookup>
bool WithEntry(const Lookup& lookup, Entry* entry, std::vector<char>* buffer) {
  for (size_t size = 4096; size <= (4u << 20); size *= 4) {
    buffer->resize(size);
    Entry* found = nullptr;
    int error = lookup(entry, buffer->data(), buffer->size(), &found);
    if (error == ERANGE) continue;
    return error == 0 && found != nullptr;
  }
  return false;
}

// The groups that the user database gives this user, beside the connection's own.
std::set<gid_t> SupplementaryGroups(uid_t uid) {
  passwd user{};
  std::vector<char> buffer;
  auto lookup = [uid](passwd* entry, char* data, size_t size, passwd** found) {
    return getpwuid_r(uid, entry, data, size, found);
  };
  if (!WithEntry(lookup, &user, &buffer)) return {};
  int count = 64;
  std::vector<gid_t> ids(count);
  if (getgrouplist(user.pw_name, user.pw_gid, ids.data(), &count) < 0) {
    ids.resize(std::max(count, 1));
    if (getgrouplist(user.pw_name, user.pw_gid, ids.data(), &count) < 0) return {};
  }
  return {ids.begin(), ids.begin() + count};
}

}  // namespace

absl::StatusOr<uid_t> FindUser(const std::string& name) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  passwd user{};
  std::vector<char> buffer;
  auto lookup = [&](passwd* entry, char* data, size_t size, passwd** found) {
    return getpwnam_r(name.c_str(), entry, data, size, found);
  };
  if (WithEntry(lookup, &user, &buffer)) return user.pw_uid;
  return absl::NotFoundError(
      absl::StrCat("there is no user '", name, "' on this machine; a number is accepted too"));
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
  return absl::NotFoundError(
      absl::StrCat("there is no group '", name, "' on this machine; a number is accepted too"));
}

void AccessControl::Replace(AccessList list) {
  MutexLock lock(&mu_);
  list_ = std::move(list);
  groups_.clear();
}

absl::Status AccessControl::Check(const PeerIdentity& peer) {
  if (peer.uid == 0 || peer.uid == geteuid()) return absl::OkStatus();
  bool ask_groups = false;
  {
    MutexLock lock(&mu_);
    if (list_.users.count(peer.uid) > 0 || list_.groups.count(peer.gid) > 0)
      return absl::OkStatus();
    if (!list_.groups.empty()) {
      auto known = groups_.find(peer.uid);
      ask_groups = known == groups_.end() || MonotonicNs() - known->second.read_ns > kGroupsKeptNs;
    }
  }
  // The name service may be slow: it is asked without the lock.
  std::set<gid_t> fresh;
  if (ask_groups) fresh = SupplementaryGroups(peer.uid);
  {
    MutexLock lock(&mu_);
    if (ask_groups) {
      if (groups_.size() >= kMaxUsersKept) groups_.clear();
      groups_[peer.uid] = {std::move(fresh), MonotonicNs()};
    }
    if (auto known = groups_.find(peer.uid); known != groups_.end()) {
      for (gid_t id : known->second.ids) {
        if (list_.groups.count(id) > 0) return absl::OkStatus();
      }
    }
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "user ", peer.uid,
      " may not use this daemon; the administrator can add the user to 'access.users' or "
      "one of the user's groups to 'access.groups' in feedwater.yaml, and reload it"));
}

}  // namespace feedwater::server
