// The folder with the daemon's two sockets, and the lock that keeps a second daemon out of it.
//
// The folder and its sockets let in whoever `access` may let in; which connections are served is
// decided for each of them by its user (AccessControl), so the modes are a second line:
//   access empty             folder 0750, sockets 0660
//   one group and no user    folder 0750, sockets 0660, all of that group, when this process may
//   give them to it otherwise                folder 0755, sockets 0666
// A folder that was there before and was not made by a daemon keeps its own mode.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/process_lock.h"
#include "server/service/access.h"
#include "server/storage/roots.h"

namespace feedwater::server {

// Makes the folder and those above it that are missing (0750 and 0755). PermissionDenied when it
// stands in a folder that everybody may write to, such as /tmp, and belongs to somebody else.
absl::Status MakeFolder(const std::string& path);

// Removes the sockets, `files`, the lock, the folder if nothing else is in it, and the one above it
// if that is empty then. For who holds the lock: another daemon may come as soon as that is gone.
// Nothing where the lock at the path is not this process's: another daemon has come.
void RemoveRuntimeDir(const std::string& path, const std::vector<std::string>& files);

class RuntimeDir {
 public:
  // Makes the folder and takes its lock. AlreadyExists, with the pid of the daemon that holds it.
  static absl::StatusOr<std::unique_ptr<RuntimeDir>> Claim(const std::string& path);

  std::string control_socket() const { return path_ + "/control.sock"; }
  std::string data_socket() const { return path_ + "/data.sock"; }
  // RemoveRuntimeDir when this goes: of a daemon whose folder was made for it alone.
  void RemoveAtEnd(std::vector<std::string> files);
  ~RuntimeDir();
  // Gives the folder and the sockets that are in it their modes.
  void Admit(const AccessList& access) const;

 private:
  RuntimeDir(std::string path, ProcessLock lock, bool ours)
      : path_(std::move(path)), lock_(std::move(lock)), ours_(ours) {}

  const std::string path_;
  const ProcessLock lock_;
  const bool ours_;                                // made by this daemon or by one before it
  std::optional<std::vector<std::string>> files_;  // to be removed at the end, with all else
};

}  // namespace feedwater::server
