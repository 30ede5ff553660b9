#include "server/transport/arena_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace feedwater::server {

absl::StatusOr<std::unique_ptr<ArenaWatch>> ArenaWatch::Create(int max_per_owner) {
  Fd inotify(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify) {
    return absl::ResourceExhaustedError(
        absl::StrCat(ErrnoStatus(errno, "no inotify instance to watch shared memory").message(),
                     "; cure: raise the sysctl fs.inotify.max_user_instances, or LimitNOFILE="));
  }
  return std::unique_ptr<ArenaWatch>(new ArenaWatch(std::move(inotify), max_per_owner));
}

absl::Status ArenaWatch::Add(int memfd, ArenaAccount account) {
  MutexLock lock(&mu_);
  const auto of_owner = held_.find(account.owner);
  if (of_owner != held_.end() && of_owner->second >= max_per_owner_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "user ", account.owner, " holds the shared memory of ", of_owner->second,
        " streams, open or ended, which is twice limits.connections_per_uid; end the processes "
        "that keep it"));
  }
  const std::string path = absl::StrCat("/proc/self/fd/", memfd);
  const int watch = inotify_add_watch(inotify_.get(), path.c_str(), IN_DELETE_SELF);
  if (watch < 0) {
    const int error = errno;
    const std::string why(ErrnoStatus(error, "shared memory cannot be watched").message());
    if (error == ENOSPC || error == ENOMEM) {
      return absl::ResourceExhaustedError(
          absl::StrCat(why, "; cure: raise the sysctl fs.inotify.max_user_watches"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(why, "; cure: let the daemon see /proc and use inotify"));
  }
  ++held_[account.owner];
  accounts_.emplace(watch, std::move(account));
  return absl::OkStatus();
}

void ArenaWatch::Settle() {
  alignas(inotify_event) char events[4096];
  for (;;) {
    const ssize_t size = read(inotify_.get(), events, sizeof(events));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, events + at, sizeof(event));
      at += static_cast<ssize_t>(sizeof(event) + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        SettleByList();
      } else {
        Gone(event.wd);
      }
    }
  }
}

void ArenaWatch::Gone(int watch) {
  ArenaAccount account;  // given back when the lock is released
  MutexLock lock(&mu_);
  const auto found = accounts_.find(watch);
  if (found == accounts_.end()) return;  // the first of its two events has done it
  account = std::move(found->second);
  accounts_.erase(found);
  if (const auto of_owner = held_.find(account.owner); --of_owner->second == 0)
    held_.erase(of_owner);
}

void ArenaWatch::SettleByList() {
  std::set<int> gone;
  {
    // Under the lock, so that a watch that is being added is in both lists or in none.
    MutexLock lock(&mu_);
    const std::string path = absl::StrCat("/proc/self/fdinfo/", inotify_.get());
    FILE* list = fopen(path.c_str(), "re");
    if (list == nullptr) return;  // counted too long, never too short
    for (const auto& [watch, account] : accounts_) gone.insert(watch);
    char line[512];
    unsigned watch = 0;
    while (fgets(line, sizeof(line), list) != nullptr) {
      if (sscanf(line, "inotify wd:%x", &watch) == 1) gone.erase(static_cast<int>(watch));
    }
    if (ferror(list) != 0) gone.clear();
    fclose(list);
  }
  for (int watch : gone) Gone(watch);
}

int ArenaWatch::held(uid_t owner) const {
  MutexLock lock(&mu_);
  const auto of_owner = held_.find(owner);
  return of_owner == held_.end() ? 0 : of_owner->second;
}

int ArenaWatch::held() const {
  MutexLock lock(&mu_);
  return static_cast<int>(accounts_.size());
}

}  // namespace feedwater::server
