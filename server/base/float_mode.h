// Keeps the thread's floating-point mode across code of others: rounding and what becomes of
// denormals decide bytes that ops of our own make, and threads inherit them.
#pragma once

#include <cfenv>

namespace feedwater::server {

class KeptFloatMode {
 public:
  KeptFloatMode() { fegetenv(&mode_); }
  ~KeptFloatMode() { fesetenv(&mode_); }
  KeptFloatMode(const KeptFloatMode&) = delete;
  KeptFloatMode& operator=(const KeptFloatMode&) = delete;

 private:
  fenv_t mode_{};
};

}  // namespace feedwater::server
