// Waiting for what another thread or process is about to do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace feedwater::testing {

// Whether it becomes true within ten seconds.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace feedwater::testing
