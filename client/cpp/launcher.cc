#include "client/cpp/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace feedwater {
namespace {

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<int64_t> EnvNumber(const char* name) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(Env(name), &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("environment variable ", name, "='", Env(name), "' is not a number"));
  }
  return number;
}

struct Launcher {
  const char *rank, *world_size, *local_rank;
};
constexpr Launcher kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Launcher kSlurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};
constexpr Launcher kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK"};

std::string JobOf(const Launcher& launcher) {
  if (launcher.rank == kSlurm.rank)
    return absl::StrCat("slurm-", Env("SLURM_JOB_ID"), ".", Env("SLURM_STEP_ID"));
  if (launcher.rank == kOpenMpi.rank) {
    const std::string space = Env("PMIX_NAMESPACE");
    return absl::StrCat("mpi-", space.empty() ? Env("OMPI_MCA_ess_base_jobid") : space);
  }
  const std::string run = Env("TORCHELASTIC_RUN_ID");
  return absl::StrCat("torchrun-", run.empty() || run == "none" ? "" : absl::StrCat(run, "-"),
                      Env("MASTER_ADDR"), ":", Env("MASTER_PORT"));
}

}  // namespace

absl::StatusOr<LaunchIdentity> IdentifyLaunch(std::optional<int64_t> rank,
                                              std::optional<int64_t> world_size) {
  LaunchIdentity identity;
  identity.job = absl::StrCat("pid-", getpid());
  for (const Launcher& launcher : {kTorchrun, kSlurm, kOpenMpi}) {
    if (Env(launcher.rank).empty() || Env(launcher.world_size).empty()) continue;
    absl::StatusOr<int64_t> found_rank = EnvNumber(launcher.rank);
    absl::StatusOr<int64_t> found_world = EnvNumber(launcher.world_size);
    if (!found_rank.ok()) return found_rank.status();
    if (!found_world.ok()) return found_world.status();
    identity.rank = *found_rank;
    identity.world_size = *found_world;
    if (!Env(launcher.local_rank).empty()) {
      absl::StatusOr<int64_t> local = EnvNumber(launcher.local_rank);
      if (!local.ok()) return local.status();
      identity.local_rank = *local;
    }
    identity.job = JobOf(launcher);
    break;
  }
  if (rank) identity.rank = *rank;
  if (world_size) identity.world_size = *world_size;
  if (identity.world_size < 1 || identity.rank < 0 || identity.rank >= identity.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", identity.rank, " of world_size ", identity.world_size,
                     ": the rank must be at least 0 and below the world size"));
  }
  return identity;
}

std::string DefaultJobName(const LaunchIdentity& identity, const std::string& pipeline) {
  static std::mutex mutex;
  static std::map<std::string, int>* opened = new std::map<std::string, int>;
  const std::string name = std::filesystem::path(pipeline).stem().string();
  std::lock_guard lock(mutex);
  const int count = ++(*opened)[name];
  return absl::StrCat(identity.job, "/", name, count == 1 ? "" : absl::StrCat("#", count));
}

}  // namespace feedwater
