// Goal: a C++ rank finds its place and its job's name from any launcher's environment, as the
// Python client does. Method: set the variables that the launcher sets, and nothing else.
#include "client/cpp/launcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace feedwater {
namespace {

class Launcher : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_MCA_ess_base_jobid",
                             "PMIX_NAMESPACE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_NPROCS"}) {
      unsetenv(name);
    }
  }
  void Set(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
};

TEST_F(Launcher, WithoutOneAProcessIsRankZeroOfOneInItsOwnJob) {
  const auto identity = IdentifyLaunch({}, {});
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->rank, 0);
  EXPECT_EQ(identity->world_size, 1);
  EXPECT_TRUE(absl::StartsWith(identity->job, absl::StrCat("pid-", getpid(), ".")));
}

TEST_F(Launcher, TorchrunSlurmAndOpenMpiAreUnderstood) {
  Set({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "run7"}});
  auto identity = IdentifyLaunch({}, {});
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->rank, 3);
  EXPECT_EQ(identity->world_size, 8);
  EXPECT_EQ(identity->local_rank, 1);
  EXPECT_EQ(identity->job, "run7");

  SetUp();
  Set({{"SLURM_PROCID", "2"},
       {"SLURM_NTASKS", "4"},
       {"SLURM_LOCALID", "0"},
       {"SLURM_JOB_ID", "99"},
       {"SLURM_STEP_ID", "1"}});
  identity = IdentifyLaunch({}, {});
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->rank, 2);
  EXPECT_EQ(identity->job, "slurm-99.1");

  SetUp();
  Set({{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"PMIX_NAMESPACE", "5"}});
  identity = IdentifyLaunch({}, {});
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->local_rank, 1);
  EXPECT_EQ(identity->job, "mpi-5");
}

TEST_F(Launcher, ARestartedGroupHasAJobOfItsOwn) {
  Set({{"RANK", "0"},
       {"WORLD_SIZE", "1"},
       {"TORCHELASTIC_RUN_ID", "run7"},
       {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(IdentifyLaunch({}, {})->job, "run7.2");
}

TEST_F(Launcher, ArgumentsWinAndOthersThanTheLaunchersMakeAnotherJob) {
  Set({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"TORCHELASTIC_RUN_ID", "run7"}});
  EXPECT_EQ(IdentifyLaunch(3, 8)->job, "run7");
  const auto alone = IdentifyLaunch(0, 1);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->rank, 0);
  EXPECT_EQ(alone->world_size, 1);
  EXPECT_TRUE(absl::StartsWith(alone->job, absl::StrCat("pid-", getpid(), ".")));
}

TEST_F(Launcher, ABrokenVariableAndHalfAPlaceAreNamed) {
  EXPECT_TRUE(absl::IsInvalidArgument(IdentifyLaunch(1, {}).status()));
  Set({{"RANK", "three"}, {"WORLD_SIZE", "8"}});
  const absl::Status broken = IdentifyLaunch({}, {}).status();
  EXPECT_TRUE(absl::StrContains(broken.message(), "RANK")) << broken;
  EXPECT_TRUE(absl::StrContains(broken.message(), "three")) << broken;
  EXPECT_TRUE(IdentifyLaunch(0, 2).ok());
}

TEST_F(Launcher, LaunchersThatContradictOneAnotherAreRefusedUnlessTheProgramSaysEverything) {
  // A leftover of another launch would make each task of srun a world of its own.
  Set({{"RANK", "0"},
       {"WORLD_SIZE", "1"},
       {"SLURM_PROCID", "2"},
       {"SLURM_NTASKS", "4"},
       {"SLURM_STEP_ID", "1"}});
  const absl::Status refused = IdentifyLaunch({}, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "torchrun says rank 0 of 1")) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "Slurm says rank 2 of 4")) << refused;
  EXPECT_TRUE(IdentifyLaunch(0, 1).ok());
}

TEST_F(Launcher, EveryStreamOfAPipelineHasItsOwnJobName) {
  const LaunchIdentity identity{0, 1, 0, "run7"}, own{0, 1, 0, "pid-7"};
  const auto open = [](const LaunchIdentity& launch, const std::string& pipeline) {
    DefaultJob job(launch, pipeline);
    job.Keep();
    return job.name();
  };
  EXPECT_EQ(open(own, "launcher-test"), "pid-7/launcher-test#1");
  EXPECT_EQ(open(identity, "launcher-test"), "run7/launcher-test#1");
  EXPECT_EQ(open(identity, "/some/where/launcher-test.yaml"), "run7/launcher-test#2");
}

TEST_F(Launcher, AStreamThatCannotBeOpenedUsesNoNumberUp) {
  const LaunchIdentity identity{0, 1, 0, "run8"};
  {
    DefaultJob first(identity, "launcher-test"), second(identity, "launcher-test");
    EXPECT_EQ(second.name(), "run8/launcher-test#2");
    second.Keep();
  }
  DefaultJob again(identity, "launcher-test"), third(identity, "launcher-test");
  EXPECT_EQ(again.name(), "run8/launcher-test#1");
  EXPECT_EQ(third.name(), "run8/launcher-test#3");
}

}  // namespace
}  // namespace feedwater
