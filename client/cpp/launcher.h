// Who this process is in a distributed job, as its launcher tells in the environment. The rules and
// the job names are those of the Python client (client/python/feedwater/placement.py), so that
// ranks in both languages meet in one job. The worst failure of a loader is two ranks that read the
// same samples without a word: so half of what a launcher says, and launchers that contradict one
// another, are refused rather than guessed. Process groups (MPI_Comm, torch) are not looked at: a
// program that has one gives rank and world_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace feedwater {

struct LaunchIdentity {
  int64_t rank = 0, world_size = 1, local_rank = 0;
  std::string job;  // what all ranks of this launch have in common; without it "pid-N.BEGAN.SPACE"
};

// Arguments win, both of them; with others than the launcher's the job is this process's own. Else
// the environment of torchrun, Horovod, Open MPI, MVAPICH, PMI or srun, whichever is complete
// first; else rank 0 of 1. InvalidArgument when a variable is no number, half of a launcher's are
// there, this may be the shell of `srun --pty`, TF_CONFIG alone tells of several workers, or only
// one of rank and world_size is given; FailedPrecondition when two launchers contradict one
// another. The daemon checks that the rank is below the world size.
absl::StatusOr<LaunchIdentity> IdentifyLaunch(std::optional<int64_t> rank,
                                              std::optional<int64_t> world_size);

// The job of a stream that names none. A stream that cannot be opened uses no number up: the next
// attempt has the same job, as on ranks where the first one went well.
class DefaultJob {
 public:
  // Takes the smallest number that is free.
  DefaultJob(const LaunchIdentity& identity, const std::string& pipeline);
  ~DefaultJob();  // gives the number back, unless it is kept
  DefaultJob(const DefaultJob&) = delete;
  DefaultJob& operator=(const DefaultJob&) = delete;

  // "LAUNCH/PIPELINE#K" for the K-th stream (from 1) of a pipeline and a launch in this process:
  // the same on every rank that opens the same streams in the same order. Streams of a process's
  // own job do not count among those of the launch. PIPELINE is the name, or a file's stem.
  const std::string& name() const { return name_; }
  void Keep() { kept_ = true; }  // the stream is open

 private:
  std::string series_, name_;
  int number_ = 0;
  bool kept_ = false;
};

}  // namespace feedwater
