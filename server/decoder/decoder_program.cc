#include "server/decoder/decoder_program.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/graph/plugin_file.h"

namespace feedwater::server {
namespace {

constexpr char kName[] = "feedwater-decoder";

}  // namespace

absl::StatusOr<std::shared_ptr<const DecoderProgram>> DecoderProgram::Find() {
  absl::StatusOr<std::shared_ptr<const ChildProgram>> program = ChildProgram::Find(kName);
  if (absl::IsNotFound(program.status())) {
    return absl::NotFoundError(
        absl::StrCat(program.status().message(), ": isolation needs it beside feedwaterd"));
  }
  if (!program.ok()) return program.status();
  return std::shared_ptr<const DecoderProgram>(new DecoderProgram(*std::move(program)));
}

absl::StatusOr<std::shared_ptr<const DecoderProgram>> DecoderProgram::Open(
    const std::string& path) {
  FW_ASSIGN_OR_RETURN(std::shared_ptr<const ChildProgram> program, ChildProgram::Open(path));
  return std::shared_ptr<const DecoderProgram>(new DecoderProgram(std::move(program)));
}

absl::StatusOr<DecoderProgram::Child> DecoderProgram::Start(int region_fd) const {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(
        ErrnoStatus(errno, "a socket for a decoder process").message());
  }
  Child child;
  child.socket = Fd(pair[0]);
  const Fd given(pair[1]);
  const int descriptors[] = {given.get(), region_fd};
  FW_ASSIGN_OR_RETURN(child.pid, program_->Start(descriptors, PluginVariables()));
  return child;
}

}  // namespace feedwater::server
