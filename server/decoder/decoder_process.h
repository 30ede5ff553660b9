// One decoder process as the worker that owns it sees it: started, asked, and ended with the
// object. Nothing that it does can hold the worker up for longer than it is given time or reach
// anything but the region.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/decoder/decoder_program.h"
#include "server/decoder/region.h"

namespace feedwater::server {

class DecoderProcess {
 public:
  struct Options {
    uint64_t output_bytes = 0;  // room in the region
    uint64_t memory_bytes = 0;  // of its own, at most
  };
  static absl::StatusOr<std::unique_ptr<DecoderProcess>> Start(const DecoderProgram& program,
                                                               const Options& options);
  ~DecoderProcess();  // ends and reaps it

  const Region& region() const { return region_; }

  enum class Outcome {
    kAnswered,
    kDied,    // of what it was given, or it broke the protocol, or it did not answer in time
    kKilled,  // by somebody's SIGKILL: the kernel's for want of memory, or a person's
  };
  // How long it may take to answer, from now on. A minute before the first call: it has to start.
  void SetPatience(double seconds);

  // Gives it the request that stands in the region and waits for the answer. After anything but
  // kAnswered the process is gone, and `how` says how: "died of SIGSEGV".
  Outcome Exchange(std::string* how);

  int64_t TakeCpuNs();  // its CPU time since the last call, also after its end

 private:
  DecoderProcess(DecoderProgram::Child child, Region region)
      : pid_(child.pid), socket_(std::move(child.socket)), region_(std::move(region)) {}

  Outcome EndedBySelf(std::string* how);
  int Reap();  // waits for its end and gives its wait status
  int KillAndReap();

  pid_t pid_;  // -1: reaped
  const Fd socket_;
  const Region region_;
  double patience_seconds_ = 0;
  uint32_t sequence_ = 0;
  int64_t cpu_ns_ = 0, cpu_taken_ns_ = 0;
};

std::string SignalName(int signal);  // "SIGSEGV"

}  // namespace feedwater::server
