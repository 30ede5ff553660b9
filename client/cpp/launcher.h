// Who this process is in a distributed job, as its launcher tells in the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace feedwater {

struct LaunchIdentity {
  int64_t rank = 0, world_size = 1, local_rank = 0;
  std::string job;  // the same on every rank of one launch; "pid-N" without a launcher
};

// torchrun (RANK, WORLD_SIZE, LOCAL_RANK), Slurm (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID) or
// Open MPI (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK), whichever is complete first; else rank 0
// of 1. Given arguments win. InvalidArgument when a variable is not a number, or rank is not in [0,
// world_size).
absl::StatusOr<LaunchIdentity> IdentifyLaunch(std::optional<int64_t> rank,
                                              std::optional<int64_t> world_size);

// "LAUNCH/PIPELINE" for the first stream of a pipeline in this process, "LAUNCH/PIPELINE#2" for the
// second, and so on: the same names on every rank that opens the same streams in the same order.
// PIPELINE is the name, or the file's stem.
std::string DefaultJobName(const LaunchIdentity& identity, const std::string& pipeline);

}  // namespace feedwater
