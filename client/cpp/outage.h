// The time without a daemon: whoever waits for it for a second tells a person so, once, and when it
// is over. Likewise for a daemon that is there and does not answer. A thread of its own tells it,
// since the one that waits may stand still in a system call, such as while the daemon is stopped or
// lists a dataset's files.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "feedwater/client.h"

namespace feedwater {

// A time that a program gave, as nanoseconds: from 0, which is also what is no number, to 31 years,
// which is without end.
int64_t SecondsToNs(double seconds);

class Outage {
 public:
  using Notice = std::function<void(absl::string_view)>;

  // `notice` may be empty: a line on stderr then. `reason` says how the connection ended.
  Outage(const Notice& notice, const std::string& address, absl::string_view reason,
         double timeout_s);
  ~Outage();
  Outage(const Outage&) = delete;

  void IsOver();  // the daemon serves again

 private:
  void Run(double timeout_s);
  void Stop();

  const Notice notice_;
  const std::string address_, reason_;
  const int64_t began_ns_;
  std::mutex mu_;
  std::condition_variable stopping_;
  bool stop_ = false;  // guarded by mu_
  bool told_ = false;  // the thread's own, until it is joined
  std::thread thread_;
};

// A wait for a batch from a daemon whose connection stands: is it only slow, or stopped (SIGSTOP, a
// frozen container, a debugger)? Such a daemon hangs up on nobody.
class Silence {
 public:
  Silence(const Outage::Notice& notice, const std::string& address)
      : notice_(notice), address_(address), began_ns_(MonotonicNs()) {}
  // Asks the daemon for its status and tells, once, if there is no answer within two seconds.
  void Look();
  void End();  // the daemon goes on: says so if somebody was told

 private:
  const Outage::Notice notice_;
  const std::string address_;
  const int64_t began_ns_;
  bool told_ = false;
};

}  // namespace feedwater
