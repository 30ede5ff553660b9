// Who may use the daemon: its own user, root, and the users and groups that `access` names. A
// connection's user is what the kernel says (SO_PEERCRED), never what the client says.
//
// AccessList is a value: the names of a configuration turned into numbers. AccessControl holds the
// current one, remembers the supplementary groups of each user for a minute (a lookup may ask a
// directory server), and may be asked from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
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

class AccessControl {
 public:
  void Replace(AccessList list) ABSL_LOCKS_EXCLUDED(mu_);
  // PermissionDenied naming the user and the cure.
  absl::Status Check(const PeerIdentity& peer) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Groups {
    std::set<gid_t> ids;
    int64_t read_ns = 0;
  };
  Mutex mu_;
  AccessList list_ ABSL_GUARDED_BY(mu_);
  std::map<uid_t, Groups> groups_ ABSL_GUARDED_BY(mu_);
};

}  // namespace feedwater::server
