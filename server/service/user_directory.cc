#include "server/service/user_directory.h"

#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/clock.h"
#include "server/base/log_limiter.h"
#include "server/base/mutex.h"
#include "server/base/thread.h"
#include "server/service/access.h"

namespace feedwater::server {
namespace {

constexpr int64_t kKeptNs = 60'000'000'000;

}  // namespace

struct UserDirectory::State {
  struct Entry {
    uid_t account = 0;
    std::set<gid_t> groups;
    int64_t read_ns = 0;
    bool known = false, asked = false;
  };

  const Lookup lookup;
  const std::function<uid_t(uid_t)> account_of;
  Mutex mu;
  CondVar told;
  std::map<uid_t, Entry> users ABSL_GUARDED_BY(mu);
  std::deque<uid_t> queue ABSL_GUARDED_BY(mu);
  std::function<void()> listener ABSL_GUARDED_BY(mu);
  int threads ABSL_GUARDED_BY(mu) = 0;
  int telling ABSL_GUARDED_BY(mu) = 0;  // calls of the listener in progress
  bool ended ABSL_GUARDED_BY(mu) = false;

  State(Lookup l, std::function<uid_t(uid_t)> a) : lookup(std::move(l)), account_of(std::move(a)) {}

  // Forgets known users of the account (nullopt: of every one) if there are `most` of them; whether
  // there are fewer now.
  bool MakeRoom(std::optional<uid_t> account, size_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto is_of = [&](const auto& user) {
      return !account || user.second.account == *account;
    };
    const auto count = [&] {
      return static_cast<size_t>(std::count_if(users.begin(), users.end(), is_of));
    };
    if (count() < most) return true;
    for (auto it = users.begin(); it != users.end();)
      it = is_of(*it) && !it->second.asked ? users.erase(it) : std::next(it);
    return count() < most;
  }
};

UserDirectory::UserDirectory(Lookup lookup, std::function<uid_t(uid_t)> account_of)
    : state_(std::make_shared<State>(std::move(lookup), std::move(account_of))) {}

UserDirectory::~UserDirectory() {
  Listen(nullptr);
  MutexLock lock(&state_->mu);
  state_->ended = true;
  state_->queue.clear();
}

std::optional<std::set<gid_t>> UserDirectory::Groups(uid_t uid) {
  State& state = *state_;
  const uid_t account = state.account_of != nullptr ? state.account_of(uid) : uid;
  MutexLock lock(&state.mu);
  const int64_t now = MonotonicNs();
  if (state.users.count(uid) == 0 && (!state.MakeRoom(account, kMaxKeptOfAccount) ||
                                      !state.MakeRoom(std::nullopt, kMaxUsersKept))) {
    return std::nullopt;
  }
  State::Entry& user = state.users[uid];
  user.account = account;
  if (user.known && now - user.read_ns <= kKeptNs) return user.groups;
  if (user.asked) return std::nullopt;
  const auto is_asked = [&](const auto& other) {
    return other.second.account == account && other.second.asked;
  };
  if (static_cast<size_t>(std::count_if(state.users.begin(), state.users.end(), is_asked)) >=
      kMaxAskedOfAccount) {
    return std::nullopt;  // asked again when one of them is told
  }
  user.asked = true;
  user.known = false;
  state.queue.push_back(uid);
  if (state.threads < kThreads) {
    // Not joined: nothing ends a look-up that stands still. It holds nothing but the state.
    auto thread = StartThread("looking up users", [shared = state_] { Work(shared); });
    if (thread.ok()) {
      ++state.threads;
      thread->detach();
    } else if (state.threads == 0) {  // nobody would take it: asked again later
      user.asked = false;
      state.queue.pop_back();
      if (ClientLog().Admits("user_database", LogLimiter::kNoSource))
        spdlog::warn("{}", std::string(thread.status().message()));
    }
  }
  return std::nullopt;
}

void UserDirectory::Work(const std::shared_ptr<State>& shared) {
  State& state = *shared;
  pthread_setname_np(pthread_self(), "fw-users");
  for (;;) {
    uid_t uid;
    {
      MutexLock lock(&state.mu);
      if (state.ended || state.queue.empty()) {
        --state.threads;
        return;
      }
      uid = state.queue.front();
      state.queue.pop_front();
    }
    std::set<gid_t> groups = state.lookup(uid);
    std::function<void()> listener;
    {
      MutexLock lock(&state.mu);
      State::Entry& user = state.users[uid];
      user.groups = std::move(groups);
      user.read_ns = MonotonicNs();
      user.known = true;
      user.asked = false;
      listener = state.listener;
      state.telling += listener != nullptr;
    }
    if (listener == nullptr) continue;
    listener();
    listener = nullptr;
    MutexLock lock(&state.mu);
    --state.telling;
    state.told.SignalAll();
  }
}

void UserDirectory::Listen(std::function<void()> listener) {
  MutexLock lock(&state_->mu);
  state_->listener = std::move(listener);
  while (state_->listener == nullptr && state_->telling > 0) state_->told.Wait(&state_->mu);
}

void UserDirectory::Forget() {
  MutexLock lock(&state_->mu);
  for (auto& [uid, user] : state_->users) user.known = false;
}

std::set<gid_t> UserDirectory::AskMachine(uid_t uid) {
  passwd user{};
  std::vector<char> buffer;
  auto lookup = [uid](passwd* entry, char* data, size_t size, passwd** found) {
    return getpwuid_r(uid, entry, data, size, found);
  };
  if (!WithEntry(lookup, &user, &buffer)) return {};
  int count = 64;
  std::vector<gid_t> ids(static_cast<size_t>(count));
  if (getgrouplist(user.pw_name, user.pw_gid, ids.data(), &count) < 0) {
    ids.resize(static_cast<size_t>(std::max(count, 1)));
    if (getgrouplist(user.pw_name, user.pw_gid, ids.data(), &count) < 0) return {};
  }
  return {ids.begin(), ids.begin() + count};
}

}  // namespace feedwater::server
