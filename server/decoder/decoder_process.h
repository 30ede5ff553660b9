// One decoder process as the worker that owns it sees it: started, asked, and ended with the
// object. Nothing that it does can hold the worker up for longer than it is given time or reach
// anything but the region.
//
// Thread safety: belongs to one thread, but for Kill.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/base/mutex.h"
#include "server/decoder/decoder_program.h"
#include "server/decoder/region.h"

namespace feedwater::server {

class DecoderProcess {
 public:
  struct Options {
    uint64_t input_bytes = kRecordBytes, output_bytes = 0;  // room in the region
    uint64_t memory_bytes = 0;                              // of its own, at most
  };
  static absl::StatusOr<std::unique_ptr<DecoderProcess>> Start(const DecoderProgram& program,
                                                               const Options& options);
  ~DecoderProcess();  // ends and reaps it

  const Region& region() const { return region_; }

  enum class Outcome {
    kAnswered,
    kDied,      // of what it was given, or it broke the protocol, or it works on without an answer
    kKilled,    // by somebody's SIGKILL: the kernel's for want of memory, or a person's
    kUnwanted,  // `wanted` said so
    kStoodStill,  // it did not answer in time and has not been working: stopped, frozen, starved
  };
  // How long it may take to answer, from now on, and after how much CPU time one that has not is at
  // fault. One that has worked less goes on for as long again, if it has worked at all. A minute
  // before the first call: it has to start.
  void SetPatience(double seconds, double cpu_seconds);
  // Called several times a second while the process is waited for. False: nobody wants the answer
  // any more.
  using Watch = std::function<bool()>;
  void SetWatch(Watch watch) { watch_ = std::move(watch); }

  // Gives it the request that stands in the region and waits for the answer. After anything but
  // kAnswered the process is gone, and `how` says how: "died of SIGSEGV". Call TakeCpuNs after each
  // answer: what was not taken counts as work on the next one.
  Outcome Exchange(std::string* how);

  // So much memory may it take for a sample, beside what it has at the first call; never more than
  // Options say.
  void LimitMemory(int64_t bytes);

  // Ends it, stopped or not, from any thread: its own sees a kKilled.
  void Kill() const;

  int64_t TakeCpuNs();  // its CPU time since the last call, also after its end

 private:
  DecoderProcess(DecoderProgram::Child child, Region region)
      : socket_(std::move(child.socket)), region_(std::move(region)), pid_(child.pid) {}

  Outcome EndedBySelf(std::string* how);
  Outcome Await(std::string* how);
  int64_t CpuNs();  // so far
  int Reap();       // waits for its end and gives its wait status
  int KillAndReap();
  bool IsReaped() const;

  const Fd socket_;
  const Region region_;
  mutable Mutex mu_;                // a number that was waited for may be another process's
  pid_t pid_ ABSL_GUARDED_BY(mu_);  // -1: reaped
  double patience_seconds_ = 0, working_seconds_ = 0;
  Watch watch_;
  int64_t own_bytes_ = 0;  // 0: not looked at yet
  uint32_t sequence_ = 0;
  int64_t cpu_ns_ = 0, cpu_taken_ns_ = 0;
};

std::string SignalName(int signal);  // "SIGSEGV"

}  // namespace feedwater::server
