#include "server/background.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "server/base/status.h"

namespace feedwater::server {
namespace {

[[noreturn]] void WaitFor(pid_t second, int read_end) {
  char byte;
  ssize_t size;
  do size = read(read_end, &byte, 1);
  while (size < 0 && errno == EINTR);
  if (size == 1) _exit(0);
  int status = 0;
  while (waitpid(second, &status, 0) < 0 && errno == EINTR) {
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

absl::Status Background::Enter() {
  (void)signal(SIGCHLD, SIG_DFL);  // where it is ignored, nobody learns how a child ended
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "--background: pipe");
  const pid_t second = fork();
  if (second < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    return ErrnoStatus(error, "--background: fork");
  }
  if (second > 0) {
    close(ends[1]);
    WaitFor(second, ends[0]);
  }
  close(ends[0]);
  first_ = Fd(ends[1]);
  (void)setsid();  // fails for the leader of a group only, which a child is not
  return absl::OkStatus();
}

void Background::Serving() {
  if (!first_) return;
  (void)!write(first_.get(), "", 1);  // SIGPIPE is ignored by then
  first_ = Fd();
}

}  // namespace feedwater::server
