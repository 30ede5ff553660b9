#include "server/base/log_limiter.h"

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"

namespace feedwater::server {

bool LogLimiter::Admits(absl::string_view kind, int64_t source, int lines) {
  MutexLock lock(&mu_);
  std::pair<std::string, int64_t> key(kind, source);
  if (counts_.size() >= kMaxSources && counts_.count(key) == 0) key.second = kNoSource;
  Count& count = counts_[key];
  if (count.events == 0) count.since_ns = NowNs();
  ++count.events;
  // A period that is over is told of by Summaries, which then begins anew.
  if (count.admitted >= lines) return false;
  ++count.admitted;
  return true;
}

std::vector<std::string> LogLimiter::Summaries() {
  std::vector<std::string> lines;
  MutexLock lock(&mu_);
  const int64_t now_ns = NowNs();
  for (auto it = counts_.begin(); it != counts_.end();) {
    const auto& [key, count] = *it;
    if (now_ns - count.since_ns < kPeriodNs) {
      ++it;
      continue;
    }
    if (const int64_t left_out = count.events - count.admitted; left_out > 0) {
      const std::string who = key.second == kNoSource ? "" : absl::StrCat(" by user ", key.second);
      lines.push_back(absl::StrCat(key.first, who, ": ", left_out, " more times in the last ",
                                   (now_ns - count.since_ns) / 1'000'000'000, " s"));
    }
    it = counts_.erase(it);
  }
  return lines;
}

void LogLimiter::Advance(int64_t ns) {
  MutexLock lock(&mu_);
  advanced_ns_ += ns;
}

int64_t LogLimiter::NowNs() const { return MonotonicNs() + advanced_ns_; }

LogLimiter& ClientLog() {
  static LogLimiter limiter;
  return limiter;
}

}  // namespace feedwater::server
