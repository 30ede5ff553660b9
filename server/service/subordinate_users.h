// Whose a user number of a user namespace is. /etc/subuid gives users ranges of numbers to run
// rootless containers with; whoever owns a range can be every number of it, so what a number takes
// counts as its owner's: limits for each user would be no limits otherwise. Only the file is read;
// ranges that a directory server hands out (`subid:` in nsswitch.conf) are not seen.
//
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class SubordinateUsers {
 public:
  explicit SubordinateUsers(std::string path = "/etc/subuid") : path_(std::move(path)) {}
  // Reads the file again if it has changed. May take its time: names are looked up.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);
  // The owner of the range that the number lies in, or the number itself. Never waits.
  uid_t OwnerOf(uid_t uid) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Range {
    uint64_t end = 0;  // the first number after it
    uid_t owner = 0;
  };
  using Ranges = std::map<uint64_t, Range>;  // by their first number
  static Ranges Parse(absl::string_view text);

  const std::string path_;
  mutable Mutex mu_;
  Ranges ranges_ ABSL_GUARDED_BY(mu_);
  int64_t changed_ns_ ABSL_GUARDED_BY(mu_) = -1;  // of the file that was read
};

}  // namespace feedwater::server
