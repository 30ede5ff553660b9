// The program feedwater-decoder, opened once and started for each worker and job.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "server/base/child_program.h"
#include "server/base/fd.h"
#include "server/base/status.h"

namespace feedwater::server {

// The descriptors with which a decoder starts, besides 0, 1 and 2, which are /dev/null.
inline constexpr int kDecoderSocket = ChildProgram::kFirstDescriptor,
                     kDecoderRegion = kDecoderSocket + 1;

class DecoderProgram {
 public:
  // In the folder of this program, or in bin/ beside that folder. NotFound.
  static absl::StatusOr<std::shared_ptr<const DecoderProgram>> Find();
  static absl::StatusOr<std::shared_ptr<const DecoderProgram>> Open(const std::string& path);

  struct Child {
    pid_t pid = -1;
    Fd socket;  // SOCK_SEQPACKET; hangs up when the process ends
  };
  // Starts one, on the calling thread's CPUs and with its memory policy; it loads the plug-ins that
  // this process has. ResourceExhausted: the
  // machine has no process or no descriptor for it. Whoever gets the child must wait for it.
  absl::StatusOr<Child> Start(int region_fd) const;

  const std::string& path() const { return program_->path(); }

 private:
  explicit DecoderProgram(std::shared_ptr<const ChildProgram> program)
      : program_(std::move(program)) {}

  const std::shared_ptr<const ChildProgram> program_;
};

}  // namespace feedwater::server
