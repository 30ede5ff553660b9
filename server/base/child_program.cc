#include "server/base/child_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
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

  // Signals of a terminal or of a service manager are for the daemon, which ends its processes; one
  // that died of them would look like one that its input has killed.
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

absl::StatusOr<std::shared_ptr<const ChildProgram>> ChildProgram::Find(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("where this program lies, and with it ", name, ": ", error.message()));
  }
  const fs::path folder = self.parent_path();
  for (const fs::path& path : {folder / name, folder.parent_path() / "bin" / name}) {
    if (fs::exists(path, error)) return Open(path.string());
  }
  return absl::NotFoundError(absl::StrCat("no program ", (folder / name).string()));
}

absl::StatusOr<std::shared_ptr<const ChildProgram>> ChildProgram::Open(const std::string& path) {
  Fd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  fd = OutOfTheWay(fd.get());
  if (!fd) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  return std::shared_ptr<const ChildProgram>(new ChildProgram(path, std::move(fd)));
}

absl::StatusOr<pid_t> ChildProgram::Start(absl::Span<const int> descriptors,
                                          absl::Span<const std::string> variables) const {
  std::string name = path_.substr(path_.rfind('/') + 1);
  SpawnActions spawn;
  bool is_ready = spawn.OpenNull(0) && spawn.Move(0, 1) && spawn.Move(0, 2) && spawn.BlockSignals();
  std::vector<Fd> given;
  for (const int descriptor : descriptors) {
    given.push_back(OutOfTheWay(descriptor));
    if (!given.back()) return MachineError(errno, absl::StrCat("descriptors for ", name));
    const int to = kFirstDescriptor + static_cast<int>(given.size()) - 1;
    is_ready = is_ready && spawn.Move(given.back().get(), to);
  }
  if (!is_ready) return absl::ResourceExhaustedError(absl::StrCat("no memory to start ", name));
  std::vector<std::string> environment = Environment();
  environment.insert(environment.end(), variables.begin(), variables.end());
  std::vector<char*> pointers;
  for (std::string& variable : environment) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  char* const arguments[] = {name.data(), nullptr};
  const std::string path = absl::StrCat("/proc/self/fd/", fd_.get());
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), spawn.actions(), spawn.attributes(), arguments,
                                pointers.data());
  if (error != 0) return MachineError(error, absl::StrCat("starting ", path_));
  return pid;
}

}  // namespace feedwater::server
