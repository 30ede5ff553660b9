// How a daemon of one job ends with its clients. Each process that uses the daemon holds a FIFO
// open for writing, into which nobody writes; the daemon holds it open for reading, and the kernel
// tells it when the last writer is gone, however that one ended. A daemon that opens the FIFO when
// nobody holds it any more is over at once.
//
// Whoever opens the FIFO for writing, without waiting, learns whether there is a daemon (ENXIO:
// there is none), and sees its end (POLLERR).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/base/fd.h"

namespace feedwater::server {

class Lifeline {
 public:
  // `gone` is called once, in a thread of its own, when nobody holds the FIFO. InvalidArgument
  // where the path is no FIFO.
  static absl::StatusOr<std::unique_ptr<Lifeline>> Watch(const std::string& path,
                                                         std::function<void()> gone);
  // From now on the FIFO has no reader. Not in `gone`.
  ~Lifeline();

  bool is_over() const { return is_over_.load(std::memory_order_acquire); }

 private:
  Lifeline(Fd fifo, Fd stop, std::function<void()> gone)
      : fifo_(std::move(fifo)), stop_(std::move(stop)), gone_(std::move(gone)) {}
  void Run();
  bool NobodyHoldsIt();

  Fd fifo_;        // of the thread
  const Fd stop_;  // an eventfd: end the thread
  const std::function<void()> gone_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace feedwater::server
