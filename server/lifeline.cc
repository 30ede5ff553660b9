#include "server/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/thread.h"

namespace feedwater::server {

absl::StatusOr<std::unique_ptr<Lifeline>> Lifeline::Watch(const std::string& path,
                                                          std::function<void()> gone) {
  Fd fifo(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!fifo) return ErrnoStatus(errno, absl::StrCat("cannot open the lifeline ", path));
  struct stat info {};
  if (fstat(fifo.get(), &info) != 0 || !S_ISFIFO(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat("--lifeline ", path, " is no FIFO"));
  Fd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return ErrnoStatus(errno, "eventfd");
  std::unique_ptr<Lifeline> lifeline(
      new Lifeline(std::move(fifo), std::move(stop), std::move(gone)));
  FW_ASSIGN_OR_RETURN(lifeline->thread_,
                      StartThread("the lifeline", [self = lifeline.get()] { self->Run(); }));
  return lifeline;
}

Lifeline::~Lifeline() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

// Reading tells it also where all writers were gone before this end was opened; polling does not.
bool Lifeline::NobodyHoldsIt() {
  char bytes[256];
  for (;;) {
    const ssize_t size = read(fifo_.get(), bytes, sizeof(bytes));
    if (size > 0 || (size < 0 && errno == EINTR)) continue;  // nothing that anybody means
    return size == 0;
  }
}

void Lifeline::Run() {
  pthread_setname_np(pthread_self(), "fw-lifeline");
  while (!NobodyHoldsIt()) {
    pollfd watched[] = {{fifo_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (poll(watched, 2, -1) < 0 && errno == EINTR) {
    }
    if (watched[1].revents != 0) return;
  }
  fifo_ = Fd();  // whoever comes now starts another daemon
  is_over_.store(true, std::memory_order_release);
  spdlog::info("the last client is gone");
  gone_();
}

}  // namespace feedwater::server
