// Keeps what somebody outside can cause as often as they like from filling the log: of each kind
// of event and each source the first few in a minute have a line of their own, the others are
// counted, and one line says how many there were.
//
//   if (ClientLog().Admits("control_refused_access", peer.uid)) spdlog::warn(...);
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class LogLimiter {
 public:
  static constexpr int kLines = 4;       // of one kind and source in a period
  static constexpr int kOpenLines = 64;  // of what is opened: operators look for it
  static constexpr int64_t kPeriodNs = 60'000'000'000;
  static constexpr size_t kMaxSources = 256;  // further ones share a place for each kind
  static constexpr int64_t kNoSource = -1;    // not somebody in particular

  // Whether this event gets a line. `source` is a user's number.
  bool Admits(absl::string_view kind, int64_t source, int lines = kLines) ABSL_LOCKS_EXCLUDED(mu_);
  // A line for each kind and source of which some were left out, once their minute is over.
  std::vector<std::string> Summaries() ABSL_LOCKS_EXCLUDED(mu_);

  // For tests: the clock goes on by so much.
  void Advance(int64_t ns) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Count {
    int64_t since_ns = 0;
    int64_t events = 0, admitted = 0;
  };
  int64_t NowNs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::map<std::pair<std::string, int64_t>, Count> counts_ ABSL_GUARDED_BY(mu_);
  int64_t advanced_ns_ ABSL_GUARDED_BY(mu_) = 0;
};

// The process's own, for what clients cause. The daemon's housekeeping writes its summaries.
LogLimiter& ClientLog();

}  // namespace feedwater::server
