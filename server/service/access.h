// Who may use the daemon: its own user, root, and the users and groups that `access` names. A
// connection's user is what the kernel says (SO_PEERCRED), never what the client says.
//
// AccessList is a value: the names of a configuration turned into numbers. AccessControl holds the
// current one and may be asked from any thread; it never waits for the user database.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/service/user_directory.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

struct AccessList {
  std::set<uid_t> users;
  std::set<gid_t> groups;
  bool empty() const { return users.empty() && groups.empty(); }
};

// A user or group by name or by number. NotFound when no such name exists; a number is taken as it
// stands.
absl::StatusOr<uid_t> FindUser(const std::string& name);
absl::StatusOr<gid_t> FindGroup(const std::string& name);

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

class AccessControl {
 public:
  explicit AccessControl(UserDirectory::Lookup lookup = UserDirectory::AskMachine,
                         std::function<uid_t(uid_t)> account_of = nullptr)
      : directory_(std::move(lookup), std::move(account_of)) {}
  void Replace(AccessList list) ABSL_LOCKS_EXCLUDED(mu_);
  // Until Replace takes its place: admits whom both this list and the one that holds do.
  void Narrow(AccessList coming) ABSL_LOCKS_EXCLUDED(mu_);
  // PermissionDenied naming the user and the cure; nullopt while the user's groups are looked up.
  std::optional<absl::Status> Check(const PeerIdentity& peer) ABSL_LOCKS_EXCLUDED(mu_);
  UserDirectory& directory() { return directory_; }

 private:
  // Nullopt while the user's groups are looked up.
  std::optional<bool> IsOn(const AccessList& list, const PeerIdentity& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  AccessList list_ ABSL_GUARDED_BY(mu_);
  std::optional<AccessList> coming_ ABSL_GUARDED_BY(mu_);
  UserDirectory directory_;
};

}  // namespace feedwater::server
