// Whether a test can act as another user.
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <initializer_list>
#include <string>

namespace feedwater::testing {

// Only root can become another user, and that user must be let through to the folder of temporary
// files and to `programs`: not below a root or a home that is closed to all others.
inline bool CanBe(uid_t user, std::initializer_list<std::string> programs = {}) {
  if (geteuid() != 0) return false;
  const std::string folder = std::filesystem::temp_directory_path();
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0) _exit(1);
    bool through = access(folder.c_str(), X_OK) == 0;
    for (const std::string& program : programs)
      through = through && access(program.c_str(), X_OK) == 0;
    _exit(through ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline constexpr const char* kNoOtherUsers =
    "only root can become another user, and only where folders are open to that user";

}  // namespace feedwater::testing
