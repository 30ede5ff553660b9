#include "client/cpp/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace feedwater {
namespace {

struct Launcher {
  absl::string_view name;
  std::initializer_list<const char*> rank, world_size, local_rank;  // the first that is set counts
};
const Launcher kLaunchers[] = {
    {"torchrun", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}},
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"}},
    {"Slurm", {"SLURM_PROCID"}, {"SLURM_NTASKS", "SLURM_NPROCS"}, {"SLURM_LOCALID"}},
    {"PMI", {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}},
};

std::string Env(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

absl::StatusOr<std::optional<int64_t>> EnvNumber(std::initializer_list<const char*> names) {
  const std::string text = Env(names);
  if (text.empty()) return std::optional<int64_t>();
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(absl::StrCat("the environment variable ", *names.begin(),
                                                   " is '", text, "', not a number"));
  }
  return std::optional<int64_t>(number);
}

std::string Rendezvous() {
  const std::string address = Env({"MASTER_ADDR"}), port = Env({"MASTER_PORT"});
  return address.empty() || port.empty() ? "" : absl::StrCat(address, ":", port);
}

std::string SlurmJob() {
  const std::string job = Env({"SLURM_JOB_ID", "SLURM_JOBID"}),
                    step = Env({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (job.empty()) return "";
  return step.empty() ? absl::StrCat("slurm-", job) : absl::StrCat("slurm-", job, ".", step);
}

std::string FirstOf(std::string a, std::string b) { return a.empty() ? b : a; }

// What all ranks of a launch have in common; "" when nothing is known.
std::string JobOf(const Launcher& launcher) {
  if (launcher.name == "torchrun") {
    std::string run = Env({"TORCHELASTIC_RUN_ID"});
    if (run.empty()) return FirstOf(Rendezvous(), SlurmJob());
    // torchrun's default id is the same for all runs of a machine.
    if (run == "none") run = absl::StrCat("torchrun-", FirstOf(Rendezvous(), "none"));
    // A restarted group must not meet the ranks of the one before it.
    const std::string restarts = FirstOf(Env({"TORCHELASTIC_RESTART_COUNT"}), "0");
    return restarts == "0" ? run : absl::StrCat(run, ".", restarts);
  }
  if (launcher.name == "Slurm") return SlurmJob();
  const std::string mpi = Env({"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID"});
  return mpi.empty() ? FirstOf(SlurmJob(), Rendezvous()) : absl::StrCat("mpi-", mpi);
}

}  // namespace

absl::StatusOr<LaunchIdentity> IdentifyLaunch(std::optional<int64_t> rank,
                                              std::optional<int64_t> world_size) {
  LaunchIdentity identity;
  bool found = false;
  for (const Launcher& launcher : kLaunchers) {
    const auto env_rank = EnvNumber(launcher.rank), env_world = EnvNumber(launcher.world_size),
               env_local = EnvNumber(launcher.local_rank);
    for (const auto* number : {&env_rank, &env_world, &env_local}) {
      // A broken variable must not stand in the way of somebody who says everything.
      if (!number->ok() && !(rank && world_size)) return number->status();
    }
    if (!env_rank.ok() || !env_world.ok() || !env_local.ok() || !*env_rank || !*env_world) continue;
    found = true;
    identity.rank = rank.value_or(**env_rank);
    identity.world_size = world_size.value_or(**env_world);
    identity.local_rank = env_local->value_or(**env_rank);
    // A program that divides its processes in its own way has a job of its own.
    if (identity.rank == **env_rank && identity.world_size == **env_world)
      identity.job = JobOf(launcher);
    break;
  }
  if (!found) {
    if (rank.has_value() != world_size.has_value()) {
      return absl::InvalidArgumentError(
          "one of rank and world_size is given and no launcher's environment has the other: give "
          "both");
    }
    identity.rank = identity.local_rank = rank.value_or(0);
    identity.world_size = world_size.value_or(1);
  }
  if (identity.job.empty()) identity.job = absl::StrCat("pid-", getpid());
  return identity;
}

std::string DefaultJobName(const LaunchIdentity& identity, const std::string& pipeline) {
  static std::mutex mutex;
  static auto* opened = new std::map<std::string, int>;
  const bool is_file = absl::EndsWith(pipeline, ".yaml") || absl::EndsWith(pipeline, ".yml");
  const std::string name = is_file ? std::filesystem::path(pipeline).stem().string() : pipeline;
  std::lock_guard lock(mutex);
  return absl::StrCat(identity.job, "/", name, "#", ++(*opened)[name]);
}

}  // namespace feedwater
