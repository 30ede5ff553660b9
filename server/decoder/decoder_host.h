// The decoder processes of a daemon: what they have in common, and how they all end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>

#include "server/base/cpus.h"
#include "server/base/memory_budget.h"
#include "server/base/mutex.h"
#include "server/base/status.h"
#include "server/decoder/decoder_process.h"

namespace feedwater::server {

// What all decoder processes of a daemon have in common. Thread-safe.
class DecoderHost {
 public:
  std::shared_ptr<const DecoderProgram> program;  // there before the first process is wanted
  std::shared_ptr<MemoryBudget> budget;  // for ProcessBytes; null: others have reserved them
  // How long a sample may take beside three times its pipeline's max_decode_ms.
  double patience_seconds = 20;
  // How many processes the kernel has killed for want of memory.
  std::function<uint64_t()> oom_kills = OomKills;
  // Whether a process's death gets a line in the log: records can end one after the other.
  std::function<bool()> admits_line = [] { return true; };
  std::atomic<int> running{0};
  std::atomic<uint64_t> started{0};
  std::atomic<uint64_t> deaths{0};  // other than at the end of their job

  // Ends all processes at once, also those that stand still, and lets no other start. Whoever waits
  // for one gets an error that tells of the machine.
  void Stop();

 private:
  friend class IsolatedMaker;
  absl::Status Enter(const DecoderProcess* process);  // an error: there is no place for it any more
  void Leave(const DecoderProcess* process);          // before its end

  Mutex mu_;
  bool is_stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::set<const DecoderProcess*> processes_ ABSL_GUARDED_BY(mu_);
};

// What this program's decoders are, if they work here: finds their program, and starts and ends one
// that has nothing to do. The error says why none can be had. `budget` may be null.
absl::StatusOr<std::shared_ptr<DecoderHost>> FindDecoders(std::shared_ptr<MemoryBudget> budget);

}  // namespace feedwater::server
