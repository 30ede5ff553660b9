// How often something may happen: `rate` a second in the long run, `burst` at once. Taking more
// than is left is allowed while anything is left, and paid back by waiting. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace feedwater::server {

class TokenBucket {
 public:
  TokenBucket(double rate, double burst) : rate_(rate), burst_(burst), tokens_(burst) {}

  bool empty(int64_t now_ns) {
    Fill(now_ns);
    return tokens_ <= 0;
  }
  void Take(double tokens) { tokens_ -= tokens; }
  bool full(int64_t now_ns) {
    Fill(now_ns);
    return tokens_ >= burst_;
  }

 private:
  void Fill(int64_t now_ns) {
    if (filled_ns_ != 0)
      tokens_ = std::min(burst_, tokens_ + rate_ * static_cast<double>(now_ns - filled_ns_) / 1e9);
    filled_ns_ = now_ns;
  }

  const double rate_, burst_;
  double tokens_;
  int64_t filled_ns_ = 0;
};

}  // namespace feedwater::server
