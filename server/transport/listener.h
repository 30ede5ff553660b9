// The listening end of data.sock: makes the socket file, accepts, and finds out who is there: user
// and process by SO_PEERCRED, the process's life by a pidfd. Used by one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/base/fd.h"
#include "server/base/status.h"
#include "server/transport/data_server.h"

namespace feedwater::server {

class Listener {
 public:
  // Binds `path` with mode 0660. The socket file of a dead daemon is replaced; that no living
  // daemon uses it is for the caller to know (a lock on runtime_dir). The file is removed with the
  // listener.
  static absl::StatusOr<Listener> Bind(const std::string& path);
  // Takes over a listening SOCK_SEQPACKET socket that somebody else made (systemd). Closed with the
  // listener.
  static absl::StatusOr<Listener> Adopt(int fd);

  Listener(Listener&& other) noexcept;
  ~Listener();

  int fd() const { return socket_.get(); }
  // nullopt when nobody is waiting. ResourceExhausted when the process has no file descriptor left:
  // that client has been turned away, so that it does not keep the thread busy.
  absl::StatusOr<std::optional<Accepted>> Accept();

 private:
  explicit Listener(Fd socket);

  Fd socket_;
  Fd spare_;  // given up for a moment to turn a client away when there are no descriptors left
  std::string path_;
  dev_t device_ = 0;  // of the file made, so that only that one is removed
  ino_t inode_ = 0;
};

}  // namespace feedwater::server
