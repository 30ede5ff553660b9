// Whose a user number of a user namespace is. /etc/subuid gives users ranges of numbers to run
// rootless containers with; whoever owns a range can be every number of it, so what a number takes
// counts as its owner's: limits for each user would be no limits otherwise. Only the file is read;
// ranges that a directory server hands out (`subid:` in nsswitch.conf) are not seen.
//
// The file names owners, and the machine's user database, which may be slow or not there yet, knows
// their numbers: a thread of its own asks it. Until it has answered, all numbers of an owner's
// ranges count as one user, the first of them.
//
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/service/access.h"

namespace feedwater::server {

class SubordinateUsers {
 public:
  using Lookup = std::function<absl::StatusOr<uid_t>(const std::string& name)>;
  explicit SubordinateUsers(std::string path = "/etc/subuid", Lookup lookup = FindUser);
  // Reads the file again if it has changed, and has names looked up that are not known, once a
  // minute. Does not wait for that.
  void Refresh();
  // Until the names that are being looked up are known, or a second or two are over: whose number
  // it is should not change while it is connected.
  void AwaitNames();
  // The owner of the range that the number lies in, or the number itself. Never waits.
  uid_t OwnerOf(uid_t uid) const;

 private:
  struct State;
  static void Work(const std::shared_ptr<State>& state);
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace feedwater::server
