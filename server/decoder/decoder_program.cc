#include "server/decoder/decoder_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr char kName[] = "feedwater-decoder";
// Above what the child's own descriptors take, so that none is overwritten before it is moved.
constexpr int kOutOfTheWay = 16;

absl::Status MachineError(int error, absl::string_view what) {
  return absl::ResourceExhaustedError(ErrnoStatus(error, what).message());
}

// What a sanitizer's build or an installation in a place of its own needs; nothing else of the
// daemon's environment, which may hold secrets.
std::vector<std::string> Environment() {
  std::vector<std::string> kept;
  for (const char* name : {"LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
    if (const char* value = getenv(name)) kept.push_back(absl::StrCat(name, "=", value));
  }
  return kept;
}

class SpawnActions {
 public:
  SpawnActions() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnActions() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnActions(const SpawnActions&) = delete;

  // Signals of a terminal or of a service manager are for the daemon, which ends its decoders; a
  // decoder that died of them would look like one that a record has killed.
  bool BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    return posix_spawnattr_setsigmask(&attributes_, &all) == 0 &&
           posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK) == 0;
  }
  bool Move(int from, int to) { return posix_spawn_file_actions_adddup2(&actions_, from, to) == 0; }
  bool OpenNull(int fd) {
    return posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_RDWR, 0) == 0;
  }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

Fd OutOfTheWay(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, kOutOfTheWay)); }

}  // namespace

absl::StatusOr<std::shared_ptr<const DecoderProgram>> DecoderProgram::Find() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("where this program lies, and with it ", kName, ": ", error.message()));
  }
  const fs::path folder = self.parent_path();
  for (const fs::path& path : {folder / kName, folder.parent_path() / "bin" / kName}) {
    if (fs::exists(path, error)) return Open(path.string());
  }
  return absl::NotFoundError(absl::StrCat("no program ", (folder / kName).string(),
                                          ": isolation needs it beside feedwaterd"));
}

absl::StatusOr<std::shared_ptr<const DecoderProgram>> DecoderProgram::Open(
    const std::string& path) {
  Fd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  fd = OutOfTheWay(fd.get());
  if (!fd) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  return std::shared_ptr<const DecoderProgram>(new DecoderProgram(path, std::move(fd)));
}

absl::StatusOr<DecoderProgram::Child> DecoderProgram::Start(int region_fd) const {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return MachineError(errno, "a socket for a decoder process");
  Child child;
  child.socket = Fd(pair[0]);
  const Fd given(pair[1]);
  const Fd socket = OutOfTheWay(given.get()), region = OutOfTheWay(region_fd);
  if (!socket || !region) return MachineError(errno, "descriptors for a decoder process");

  SpawnActions spawn;
  if (!spawn.OpenNull(0) || !spawn.Move(0, 1) || !spawn.Move(0, 2) ||
      !spawn.Move(socket.get(), kDecoderSocket) || !spawn.Move(region.get(), kDecoderRegion) ||
      !spawn.BlockSignals()) {
    return absl::ResourceExhaustedError("no memory to start a decoder process");
  }
  std::vector<std::string> environment = Environment();
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  std::string name = kName;
  char* const arguments[] = {name.data(), nullptr};
  const std::string path = absl::StrCat("/proc/self/fd/", fd_.get());
  const int error = posix_spawn(&child.pid, path.c_str(), spawn.actions(), spawn.attributes(),
                                arguments, variables.data());
  if (error != 0) return MachineError(error, absl::StrCat("starting ", path_));
  return child;
}

}  // namespace feedwater::server
