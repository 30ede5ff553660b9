// The program feedwater-decoder, opened once: a new version that is installed meanwhile is not
// started by a daemon of the old one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "server/base/fd.h"
#include "server/base/status.h"

namespace feedwater::server {

// The descriptors with which a decoder starts, besides 0, 1 and 2, which are /dev/null.
inline constexpr int kDecoderSocket = 3, kDecoderRegion = 4;

class DecoderProgram {
 public:
  // In the folder of this program, or in bin/ beside that folder. NotFound.
  static absl::StatusOr<std::shared_ptr<const DecoderProgram>> Find();
  static absl::StatusOr<std::shared_ptr<const DecoderProgram>> Open(const std::string& path);

  struct Child {
    pid_t pid = -1;
    Fd socket;  // SOCK_SEQPACKET; hangs up when the process ends
  };
  // Starts one, on the calling thread's CPUs and with its memory policy. ResourceExhausted: the
  // machine has no process or no descriptor for it. Whoever gets the child must wait for it.
  absl::StatusOr<Child> Start(int region_fd) const;

  const std::string& path() const { return path_; }

 private:
  DecoderProgram(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  const std::string path_;
  const Fd fd_;
};

}  // namespace feedwater::server
