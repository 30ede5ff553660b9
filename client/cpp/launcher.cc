#include "client/cpp/launcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace feedwater {
namespace {

// The field of /proc/self/stat that says when a process began, counted behind its name.
constexpr size_t kBegan = 19;

// Those that streams of this process have, by what stands before them in a job's name.
struct Numbers {
  struct Series {
    int last = 0;
    std::set<int> given_back;
  };
  std::mutex mutex;
  std::map<std::string, Series> series;
};

Numbers& TheNumbers() {
  static auto* numbers = new Numbers;
  return *numbers;
}

// Of tasks of `srun --pty`, of which the first one has the terminal.
constexpr const char* kPty = "SLURM_PTY_PORT";

struct Launcher {
  absl::string_view name;
  std::initializer_list<const char*> rank, world_size, local_rank;  // the first that is set counts
};
// The innermost first: torchrun is started by srun or mpirun, mpirun in a job of Slurm's.
const Launcher kLaunchers[] = {
    {"torchrun", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}},
    {"Horovod", {"HOROVOD_RANK"}, {"HOROVOD_SIZE"}, {"HOROVOD_LOCAL_RANK"}},
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"}},
    {"MVAPICH", {"MV2_COMM_WORLD_RANK"}, {"MV2_COMM_WORLD_SIZE"}, {"MV2_COMM_WORLD_LOCAL_RANK"}},
    {"PMI", {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}},
    {"Slurm",
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     {"SLURM_LOCALID"}},
};

// What a launcher says; nothing where it does not.
struct Said {
  const Launcher* launcher = nullptr;
  std::optional<int64_t> rank, world_size, local_rank;
  std::string names;          // the variables, for messages
  std::string missing;        // the one that is not there
  bool may_be_shell = false;  // one process, started by hand in the shell of a first task

  std::string Text() const {
    return absl::StrCat(launcher->name, " says rank ", *rank, " of ", *world_size, " (", names,
                        ")");
  }
};

// The name of the first variable that is set, or null.
const char* FirstSet(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && !absl::StripAsciiWhitespace(value).empty()) return name;
  }
  return nullptr;
}

std::string Env(std::initializer_list<const char*> names) {
  const char* name = FirstSet(names);
  return name == nullptr ? "" : std::getenv(name);
}

absl::StatusOr<std::optional<int64_t>> EnvNumber(std::initializer_list<const char*> names) {
  const char* name = FirstSet(names);
  if (name == nullptr) return std::optional<int64_t>();
  int64_t number = 0;
  if (!absl::SimpleAtoi(std::getenv(name), &number)) {
    return absl::InvalidArgumentError(absl::StrCat("the environment variable ", name, " is '",
                                                   std::getenv(name), "', not a number"));
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

std::string FirstOf(const std::string& a, const std::string& b) { return a.empty() ? b : a; }

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

// Which tasks of srun without --pty have not, though they inherit the variables of the shell that
// they were started from.
bool HasTerminal() {
  const int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// Whether Slurm's variables are those of a task that srun started: "" when nothing is missing,
// nothing when they are not, or the name of the variable that would tell. The script of sbatch, and
// with use_interactive_step the shell of salloc, is one process with the variables of a first task,
// and SLURM_NTASKS is what srun would start.
std::optional<std::string> MissingOfStep() {
  const std::string step = Env({"SLURM_STEP_ID", "SLURM_STEPID"});
  // The shell of salloc, the script of sbatch, the container of a job.
  if (step == "4294967290" || step == "4294967291" || step == "4294967292") return std::nullopt;
  if (!step.empty() || !Env({"SLURM_STEP_NUM_TASKS"}).empty()) return "";
  if (Env({"SLURM_PROCID"}) == "0") return std::nullopt;
  return "SLURM_STEP_ID";
}

// Nothing when no variable of the launcher's is there.
absl::StatusOr<std::optional<Said>> Read(const Launcher& launcher) {
  Said said;
  said.launcher = &launcher;
  if (launcher.name == "Slurm") {
    const std::optional<std::string> missing = MissingOfStep();
    if (!missing) return std::optional<Said>();
    said.missing = *missing;
  }
  const auto rank = EnvNumber(launcher.rank), world_size = EnvNumber(launcher.world_size),
             local_rank = EnvNumber(launcher.local_rank);
  for (const auto* number : {&rank, &world_size, &local_rank}) {
    if (!number->ok()) return number->status();
  }
  if (!*rank && !*world_size) return std::optional<Said>();
  said.rank = *rank;
  said.world_size = *world_size;
  said.local_rank = *local_rank;
  if (!*world_size) said.missing = *launcher.world_size.begin();
  if (!*rank) said.missing = *launcher.rank.begin();
  said.may_be_shell = launcher.name == "Slurm" && said.missing.empty() && !Env({kPty}).empty() &&
                      *world_size != 1 && Env({"SLURM_TASK_PID"}) != absl::StrCat(getpid()) &&
                      HasTerminal();
  for (const auto& names : {launcher.rank, launcher.world_size}) {
    if (const char* name = FirstSet(names))
      absl::StrAppend(&said.names, said.names.empty() ? "" : ", ", name, "=", std::getenv(name));
  }
  return std::optional<Said>(said);
}

// This process, as no other one on the host is named: numbers of processes come again, and mean
// others in other containers.
std::string ProcessKey() {
  std::ifstream file("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::vector<absl::string_view> fields =  // behind the program's name, which may have blanks
      absl::StrSplit(absl::string_view(text).substr(text.rfind(')') + 1), ' ', absl::SkipEmpty());
  struct stat space = {};
  if (fields.size() <= kBegan || stat("/proc/self/ns/pid", &space) != 0) {
    return absl::StrCat("pid-", getpid(), ".0.0");
  }
  return absl::StrCat("pid-", getpid(), ".", fields[kBegan], ".", space.st_ino);
}

bool Contradicts(std::optional<int64_t> says, std::optional<int64_t> known) {
  return says && says != known;
}

// How many TensorFlow knows; 0 where there is no TF_CONFIG that says so.
size_t TensorFlowWorkers() {
  const char* text = std::getenv("TF_CONFIG");
  if (text == nullptr) return 0;
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("cluster")) return 0;
  const auto& cluster = config["cluster"];
  if (!cluster.is_object()) return 0;
  size_t workers = 0;
  for (const char* task : {"chief", "master", "worker"}) {
    const auto found = cluster.find(task);
    if (found != cluster.end() && found->is_structured()) workers += found->size();
  }
  return workers;
}

// What the innermost launcher says that says everything; nothing when there is none.
absl::StatusOr<std::optional<Said>> ReadLaunch() {
  std::vector<Said> complete, halves;
  for (const Launcher& launcher : kLaunchers) {
    absl::StatusOr<std::optional<Said>> said = Read(launcher);
    if (!said.ok()) return said.status();
    if (!*said) continue;
    if ((*said)->missing.empty() && !(*said)->may_be_shell) {
      complete.push_back(**said);
    } else if (complete.empty()) {
      halves.push_back(**said);
    }
  }
  for (const Said& half : halves) {
    if (complete.empty()) {
      if (!half.rank && half.world_size == 1) continue;
      if (half.may_be_shell) {
        return absl::InvalidArgumentError(absl::StrCat(
            half.Text(), ", and ", kPty,
            " is set and there is a terminal: in the shell of `srun --pty` with ", *half.world_size,
            " tasks this is one process, which would read the share of one. Start the shell with "
            "`srun --ntasks=1 --pty`, or every rank through srun, or give both rank and "
            "world_size. Where srun runs a script that starts the program, `exec` it there, or "
            "leave out `--pty`"));
      }
      return absl::InvalidArgumentError(
          absl::StrCat("half of ", half.launcher->name, "'s environment is there: ", half.names,
                       ", and no ", half.missing,
                       "; start every rank through the launcher, or give both rank and "
                       "world_size"));
    }
    const Said& found = complete.front();
    if (Contradicts(half.rank, found.rank) || Contradicts(half.world_size, found.world_size)) {
      return absl::FailedPreconditionError(
          absl::StrCat(found.Text(), ", but ", half.names,
                       " contradicts it: unset what is not the launcher's, or give both rank and "
                       "world_size"));
    }
  }
  if (complete.empty()) {
    if (const size_t workers = TensorFlowWorkers(); workers > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("TF_CONFIG names ", workers,
                       " workers, and nothing says which rank this process is: give both rank and "
                       "world_size"));
    }
    return std::optional<Said>();
  }
  const Said& found = complete.front();
  for (const Said& outer : complete) {
    // Each process of an outer launcher starts one or more of torchrun's. A world of one inside a
    // larger one is most often a leftover: each of them would read everything.
    if ((found.launcher->name == "torchrun" || *found.world_size == 1) &&
        *found.world_size < *outer.world_size) {
      return absl::FailedPreconditionError(
          absl::StrCat(found.Text(), ", but ", outer.Text(),
                       ": unset what is left of another launch, or, where these are trainings of "
                       "their own, give both rank and world_size"));
    }
  }
  return std::optional<Said>(found);
}

}  // namespace

absl::StatusOr<LaunchIdentity> IdentifyLaunch(std::optional<int64_t> rank,
                                              std::optional<int64_t> world_size) {
  if (rank.has_value() != world_size.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        rank ? "rank is given but world_size is not" : "world_size is given but rank is not",
        ": give both, or neither"));
  }
  absl::StatusOr<std::optional<Said>> said = ReadLaunch();
  // What is wrong there must not stand in the way of somebody who says everything.
  if (!said.ok() && !rank) return said.status();
  const std::optional<Said> found = said.ok() ? *said : std::nullopt;
  LaunchIdentity identity;
  if (found) {
    identity.rank = *found->rank;
    identity.world_size = *found->world_size;
    identity.local_rank = found->local_rank.value_or(*found->rank);
    identity.job = JobOf(*found->launcher);
  }
  if (rank) {
    // A program that divides its processes in its own way has a job of its own.
    if (!found || *rank != identity.rank || *world_size != identity.world_size) identity.job = "";
    if (!found) identity.local_rank = *rank;
    identity.rank = *rank;
    identity.world_size = *world_size;
  }
  if (identity.job.empty()) identity.job = ProcessKey();
  return identity;
}

DefaultJob::DefaultJob(const LaunchIdentity& identity, const std::string& pipeline) {
  const bool is_file = absl::EndsWith(pipeline, ".yaml") || absl::EndsWith(pipeline, ".yml");
  const std::string name = is_file ? std::filesystem::path(pipeline).stem().string() : pipeline;
  series_ = absl::StrCat(identity.job, "/", name);
  Numbers& numbers = TheNumbers();
  std::lock_guard lock(numbers.mutex);
  Numbers::Series& series = numbers.series[series_];
  number_ = series.given_back.empty()
                ? ++series.last
                : series.given_back.extract(series.given_back.begin()).value();
  name_ = absl::StrCat(series_, "#", number_);
}

DefaultJob::~DefaultJob() {
  if (kept_) return;
  Numbers& numbers = TheNumbers();
  std::lock_guard lock(numbers.mutex);
  numbers.series[series_].given_back.insert(number_);
}

}  // namespace feedwater
