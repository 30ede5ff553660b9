#include "server/service/subordinate_users.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/log_limiter.h"
#include "server/base/mutex.h"
#include "server/base/thread.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxRanges = 65536;
constexpr int64_t kAskAgainNs = 60'000'000'000;
constexpr auto kPatience = absl::Seconds(2);

struct NumberRange {
  uint64_t end = 0;  // the first number after it
  std::string name;  // of its owner
};
using Ranges = std::map<uint64_t, NumberRange>;  // by their first number; none overlap

// By their first number, and of one the longest first.
using Lines = std::vector<std::pair<uint64_t, NumberRange>>;

// Lines of NAME:START:COUNT; what is none is passed over, as the tools of shadow do.
Lines ParseRanges(absl::string_view text) {
  Lines ranges;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, ':');
    uint32_t start = 0, count = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &start) ||
        !absl::SimpleAtoi(parts[2], &count) || start == 0 || count == 0)
      continue;
    ranges.emplace_back(start, NumberRange{uint64_t{start} + count, parts[0]});
    if (ranges.size() >= kMaxRanges) break;
  }
  absl::c_stable_sort(ranges, [](const auto& a, const auto& b) {
    return std::pair(a.first, b.second.end) < std::pair(b.first, a.second.end);
  });
  return ranges;
}

// Ranges that do not overlap: a number of several is the one's that begins last.
Ranges WithoutOverlaps(const Lines& ranges) {
  Ranges parts;
  std::vector<NumberRange> open;  // the innermost last
  uint64_t next = 0;              // the first number that is in no part yet
  const auto close_until = [&](uint64_t end) {
    for (; !open.empty() && next < end;) {
      const NumberRange& innermost = open.back();
      const uint64_t part_end = std::min(innermost.end, end);
      if (next < part_end) parts.emplace(next, NumberRange{part_end, innermost.name});
      next = std::max(next, part_end);
      if (innermost.end <= next) open.pop_back();
    }
  };
  for (const auto& [start, range] : ranges) {
    close_until(start);
    next = start;
    open.push_back(range);
  }
  close_until(std::numeric_limits<uint64_t>::max());
  return parts;
}

}  // namespace

struct SubordinateUsers::State {
  const std::string path;
  const Lookup lookup;
  mutable Mutex mu;
  Ranges ranges ABSL_GUARDED_BY(mu);
  std::map<std::string, uid_t> owners ABSL_GUARDED_BY(mu);  // by name; or who stands for one
  std::set<std::string> unknown ABSL_GUARDED_BY(mu);        // names to be looked up
  int64_t changed_ns ABSL_GUARDED_BY(mu) = -1;              // of the file that was read
  int64_t asked_ns ABSL_GUARDED_BY(mu) = 0;
  bool is_asking ABSL_GUARDED_BY(mu) = false;
  CondVar asked;

  State(std::string p, Lookup l) : path(std::move(p)), lookup(std::move(l)) {}

  void Take(Ranges read) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const std::map<std::string, uid_t> before = std::move(owners);
    owners.clear();
    unknown.clear();
    for (const auto& [start, range] : read) {
      uint32_t number = 0;
      if (absl::SimpleAtoi(range.name, &number)) {
        owners[range.name] = number;
        continue;
      }
      // Looked up anew: the name may be another user's now.
      const auto known = before.find(range.name);
      owners.emplace(range.name, known != before.end() ? known->second : static_cast<uid_t>(start));
      unknown.insert(range.name);
    }
    ranges = std::move(read);
    asked_ns = 0;
  }
};

SubordinateUsers::SubordinateUsers(std::string path, Lookup lookup)
    : state_(std::make_shared<State>(std::move(path), std::move(lookup))) {}

void SubordinateUsers::Refresh() {
  State& state = *state_;
  struct stat file;
  int64_t changed_ns = 0;
  if (stat(state.path.c_str(), &file) == 0)
    changed_ns = file.st_mtim.tv_sec * 1'000'000'000LL + file.st_mtim.tv_nsec;
  bool has_changed = false;
  {
    MutexLock lock(&state.mu);
    has_changed = changed_ns != state.changed_ns;
  }
  Ranges read;
  if (has_changed && changed_ns != 0) {
    std::stringstream text;
    text << std::ifstream(state.path).rdbuf();
    read = WithoutOverlaps(ParseRanges(text.str()));
  }
  MutexLock lock(&state.mu);
  if (has_changed) {
    state.Take(std::move(read));
    state.changed_ns = changed_ns;
  }
  const int64_t now = MonotonicNs();
  const bool is_due = state.asked_ns == 0 || now - state.asked_ns >= kAskAgainNs;
  if (state.unknown.empty() || state.is_asking || !is_due) return;
  state.asked_ns = now;
  // Not joined: nothing ends a look-up that stands still. It holds nothing but the state.
  auto thread = StartThread("looking up users", [shared = state_] { Work(shared); });
  if (thread.ok()) {
    state.is_asking = true;
    thread->detach();
  } else if (ClientLog().Admits("user_database", LogLimiter::kNoSource)) {
    spdlog::warn("{}", std::string(thread.status().message()));
  }
}

void SubordinateUsers::Work(const std::shared_ptr<State>& shared) {
  State& state = *shared;
  pthread_setname_np(pthread_self(), "fw-users");
  std::set<std::string> names;
  {
    MutexLock lock(&state.mu);
    names = state.unknown;
  }
  for (const std::string& name : names) {
    const absl::StatusOr<uid_t> owner = state.lookup(name);
    MutexLock lock(&state.mu);
    const auto known = state.owners.find(name);
    if (!owner.ok() || known == state.owners.end()) continue;
    known->second = *owner;
    state.unknown.erase(name);
  }
  MutexLock lock(&state.mu);
  state.is_asking = false;
  state.asked.SignalAll();
}

void SubordinateUsers::AwaitNames() {
  State& state = *state_;
  const absl::Time end = absl::Now() + kPatience;
  MutexLock lock(&state.mu);
  while (state.is_asking && absl::Now() < end)
    state.asked.WaitWithTimeout(&state.mu, end - absl::Now());
}

uid_t SubordinateUsers::OwnerOf(uid_t uid) const {
  MutexLock lock(&state_->mu);
  auto after = state_->ranges.upper_bound(uid);
  if (after == state_->ranges.begin()) return uid;
  const NumberRange& range = std::prev(after)->second;
  if (uid >= range.end) return uid;
  return state_->owners.find(range.name)->second;
}

}  // namespace feedwater::server
