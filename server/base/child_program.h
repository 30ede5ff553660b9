// A program that this one starts as a process of its own, opened once: a new version that is
// installed meanwhile is not started by a daemon of the old one. Immutable and thread-safe.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "server/base/fd.h"
#include "server/base/status.h"

namespace feedwater::server {

class ChildProgram {
 public:
  // The first descriptor that a process is given: 0, 1 and 2 are /dev/null.
  static constexpr int kFirstDescriptor = 3;

  // In the folder of this program, or in bin/ beside that folder. NotFound: "no program PATH".
  static absl::StatusOr<std::shared_ptr<const ChildProgram>> Find(const std::string& name);
  static absl::StatusOr<std::shared_ptr<const ChildProgram>> Open(const std::string& path);

  // Starts one, on the calling thread's CPUs and with its memory policy, every signal blocked, with
  // copies of `descriptors` as 3, 4, ... and hardly any environment beside `variables`
  // (NAME=VALUE). ResourceExhausted: the machine has no process or no descriptor for it. Whoever
  // gets the process must wait for it.
  absl::StatusOr<pid_t> Start(absl::Span<const int> descriptors,
                              absl::Span<const std::string> variables = {}) const;

  const std::string& path() const { return path_; }

 private:
  ChildProgram(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  const std::string path_;
  const Fd fd_;
};

}  // namespace feedwater::server
