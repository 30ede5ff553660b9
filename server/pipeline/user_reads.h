// How many samples of each user's jobs are being read and made, so that storage that hangs for one
// user does not take all the samples that the workers have room for.
//
// Not thread-safe: guarded by the scheduler's lock.
#pragma once

#include <cstdint>
#include <map>

namespace feedwater::server {

class UserReads {
 public:
  explicit UserReads(int64_t limit) : limit_(limit) {}  // of each user; 0: none

  int64_t Room(uint32_t uid) const {
    if (limit_ == 0) return INT64_MAX;
    const auto of_user = under_way_.find(uid);
    return of_user == under_way_.end() ? limit_ : limit_ - of_user->second;
  }
  void Begin(uint32_t uid, int64_t samples) {
    if (limit_ > 0 && samples > 0) under_way_[uid] += samples;
  }
  // Returns whether the user's jobs had no room before.
  bool End(uint32_t uid, int64_t samples) {
    const auto of_user = under_way_.find(uid);
    if (samples == 0 || of_user == under_way_.end()) return false;
    const bool was_full = of_user->second >= limit_;
    if ((of_user->second -= samples) == 0) under_way_.erase(of_user);
    return was_full;
  }

 private:
  const int64_t limit_;
  std::map<uint32_t, int64_t> under_way_;  // filled only with a limit
};

}  // namespace feedwater::server
