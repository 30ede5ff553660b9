// What the attackers of hostile_flood share: what they are told, what they count, and chance.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string>

namespace feedwater::testing {

inline constexpr auto kCallTime = std::chrono::seconds(20);

struct FloodOptions {
  std::string address;
  std::string pipeline = "photos";
  int64_t messages = 100'000;
  uint64_t seed = 1;
  int threads = 1;
  int64_t uid = -1;
};

// What all threads count, and the tickets that they show each other: a ticket of somebody else is
// as wrong as a random one, and harder to refuse.
class FloodTally {
 public:
  explicit FloodTally(int64_t messages) : left_(messages) {}

  bool Take() { return left_.fetch_sub(1) > 0; }  // one message more may be sent
  bool done() const { return left_.load() <= 0; }
  void Count(const std::string& what) {
    std::lock_guard<std::mutex> lock(mu_);
    ++counts_[what];
  }
  void Show(const std::string& ticket) {
    std::lock_guard<std::mutex> lock(mu_);
    shown_ = ticket;
  }
  std::string shown() {
    std::lock_guard<std::mutex> lock(mu_);
    return shown_;
  }
  std::map<std::string, uint64_t> counts() {
    std::lock_guard<std::mutex> lock(mu_);
    return counts_;
  }

 private:
  std::atomic<int64_t> left_;
  std::mutex mu_;
  std::map<std::string, uint64_t> counts_;
  std::string shown_;
};

// All random choices of one attacker.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }

  std::string Noise(size_t most) {
    std::string noise(Below(most + 1), '\0');
    for (char& byte : noise) byte = static_cast<char>(random_());
    return noise;
  }

  // A number that is a boundary more often than not.
  int64_t Number() {
    constexpr int64_t kEdges[] = {0,  1,         -1,        2,         63,        64,
                                  65, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20};
    if (Below(3) != 0) return kEdges[Below(std::size(kEdges))];
    return static_cast<int64_t>(random_() >> Below(64));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace feedwater::testing
