// CPU lists, the choice of CPUs, and the limits of control groups.
#include "server/base/cpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/cgroup.h"
#include "tests/storage/system_calls.h"

namespace feedwater::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CpuList, ReadsRangesAndNumbers) {
  EXPECT_THAT(*ParseCpuList("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*ParseCpuList("8, 2-3"), ElementsAre(2, 3, 8));
  EXPECT_THAT(*ParseCpuList("5"), ElementsAre(5));
  EXPECT_EQ(ParseCpuList("0-4095")->size(), 4096u);
}

TEST(CpuList, RefusesEverythingElse) {
  for (const char* bad : {"", ",", "1,", "a", "-1", "1-", "3-1", "1-2-3", "0-4096", "4294967296",
                          "1,1", "0-3,2", "+1", "1.5", "0-99999999999999999999"}) {
    EXPECT_EQ(ParseCpuList(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(CpuList, FoldsRangesWhenWriting) {
  EXPECT_EQ(FormatCpuList({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(FormatCpuList({5}), "5");
  EXPECT_EQ(FormatCpuList({}), "");
}

TEST(ChooseCpus, AutoKeepsOneInEightForTheTrainers) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  auto cpus = ChooseCpus("auto", -1);
  ASSERT_TRUE(cpus.ok()) << cpus.status();
  ASSERT_FALSE(cpus->empty());
  const int count = CPU_COUNT(&mask);
  EXPECT_LE(static_cast<int>(cpus->size()), std::max(1, count - count / 8));
  for (int cpu : *cpus) EXPECT_TRUE(CPU_ISSET(cpu, &mask)) << cpu;
}

TEST(ChooseCpus, TakesACountOrAListWithinTheMask) {
  auto one = ChooseCpus("1", -1);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(*ChooseCpus(absl::StrCat((*one)[0], "-", (*one)[0]), -1), *one);
  for (const char* bad : {"0", "100000", "-", "1,4095", "many", "", "+1"}) {
    EXPECT_EQ(ChooseCpus(bad, -1).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(std::string(ChooseCpus("100000", -1).status().message()),
              HasSubstr("the CPUs that exist"));
  EXPECT_EQ(ChooseCpus("auto", 999).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChooseNumaNode, RefusesANodeThatDoesNotExist) {
  EXPECT_EQ(*ChooseNumaNode("none"), -1);
  EXPECT_TRUE(ChooseNumaNode("auto").ok());
  for (const char* bad : {"999", "-1", "x", ""}) {
    EXPECT_EQ(ChooseNumaNode(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

// feedwaterd@0 is the unit's first instance on every machine.
TEST(ChooseNumaNode, NodeZeroIsTheWholeMachineWhereTheKernelHasNoNuma) {
  WithoutSystemCall(SYS_get_mempolicy, ENOSYS, [] {
    const auto node = ChooseNumaNode("0");
    return node.ok() && *node == -1 && ChooseCpus("auto", *node).ok() &&
           absl::IsInvalidArgument(ChooseNumaNode("1").status());
  });
}

TEST(PinThisThread, PinsOnlyThisThread) {
  auto cpus = ChooseCpus("1", -1);
  ASSERT_TRUE(cpus.ok());
  std::thread([&] {
    ASSERT_TRUE(PinThisThread((*cpus)[0]).ok());
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(CPU_COUNT(&mask), 1);
    EXPECT_TRUE(CPU_ISSET((*cpus)[0], &mask));
  }).join();
  EXPECT_FALSE(PinThisThread(-1).ok());
  EXPECT_FALSE(PinThisThread(4095).ok());
  EXPECT_FALSE(PinThisThread(1 << 20).ok());
}

TEST(MemoryLimit, IsPositiveAndNoMoreThanAnyMachineHas) {
  EXPECT_GT(MemoryLimitBytes(), int64_t{16} << 20);
  EXPECT_LT(MemoryLimitBytes(), int64_t{1} << 50);
}

// Files of a machine that does not exist.
class FakeMachine {
 public:
  FakeMachine(std::string cgroup, std::string mountinfo) {
    files_["/proc/self/cgroup"] = std::move(cgroup);
    files_["/proc/self/mountinfo"] = std::move(mountinfo);
  }
  FakeMachine& With(const std::string& path, const std::string& text) {
    files_[path] = text;
    return *this;
  }
  CgroupLimits Limits() const { return ReadCgroupLimits(Reader()); }
  uint64_t OomKills() const { return ReadOomKills(Reader()); }

 private:
  FileReader Reader() const {
    return [this](const std::string& path, std::string* text) {
      auto it = files_.find(path);
      if (it == files_.end()) return false;
      *text = it->second;
      return true;
    };
  }
  std::map<std::string, std::string> files_;
};

constexpr char kV2Mount[] =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(Cgroup, TakesTheTightestLimitOfAllAncestorsInV2) {
  const CgroupLimits limits =
      FakeMachine("0::/system.slice/feedwater.service\n", kV2Mount)
          .With("/sys/fs/cgroup/system.slice/feedwater.service/cpu.max", "max 100000\n")
          .With("/sys/fs/cgroup/system.slice/feedwater.service/memory.max", "8589934592\n")
          .With("/sys/fs/cgroup/system.slice/cpu.max", "250000 100000\n")
          .With("/sys/fs/cgroup/system.slice/memory.max", "4294967296\n")
          .With("/sys/fs/cgroup/memory.max", "max\n")
          .Limits();
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 2.5);
  EXPECT_EQ(limits.memory_bytes, int64_t{4} << 30);
}

TEST(Cgroup, ReadsV1WithSharedControllersAndEscapedMounts) {
  const CgroupLimits limits =
      FakeMachine("4:memory:/a\n3:cpu,cpuacct:/a/b\n0::/\n",
                  "31 30 0:27 / /sys/fs\\040x/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                  "32 30 0:28 / /sys/fs/memory rw - cgroup cgroup rw,memory\n")
          .With("/sys/fs x/cpu/a/b/cpu.cfs_quota_us", "-1\n")
          .With("/sys/fs x/cpu/a/b/cpu.cfs_period_us", "100000\n")
          .With("/sys/fs x/cpu/a/cpu.cfs_quota_us", "50000\n")
          .With("/sys/fs x/cpu/a/cpu.cfs_period_us", "100000\n")
          .With("/sys/fs/memory/a/memory.limit_in_bytes", "1073741824\n")
          .With("/sys/fs/memory/memory.limit_in_bytes", "9223372036854771712\n")
          .Limits();
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 0.5);
  EXPECT_EQ(limits.memory_bytes, 1 << 30);
}

TEST(Cgroup, CountsTheOwnGroupsKillsForWantOfMemory) {
  constexpr char kMachine[] = "pgfault 5\noom_kill 900\n";
  EXPECT_EQ(FakeMachine("0::/a/b\n", kV2Mount)
                .With("/proc/vmstat", kMachine)
                .With("/sys/fs/cgroup/a/memory.events", "oom 3\noom_kill 7\n")
                .With("/sys/fs/cgroup/a/b/memory.events", "low 0\noom 3\noom_kill 2\n")
                .OomKills(),
            2u);
  EXPECT_EQ(
      FakeMachine("4:memory:/a\n", "32 30 0:28 / /sys/fs/memory rw - cgroup cgroup rw,memory\n")
          .With("/proc/vmstat", kMachine)
          .With("/sys/fs/memory/a/memory.oom_control", "under_oom 0\noom_kill 4\n")
          .OomKills(),
      4u);
  EXPECT_EQ(FakeMachine("0::/\n", kV2Mount).With("/proc/vmstat", kMachine).OomKills(), 900u);
  EXPECT_EQ(FakeMachine("junk", "").OomKills(), 0u);
}

TEST(Cgroup, InAContainerTheMountedRootIsTheGroup) {
  EXPECT_THAT(
      CgroupFolders("memory", "4:memory:/docker/abc/sub\n",
                    "32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"),
      ElementsAre("/sys/fs/cgroup/memory/sub", "/sys/fs/cgroup/memory"));
  // Another group's path, a path outside, a namespace: only the mount point can be looked at.
  for (const char* path : {"/docker/abcdef", "/kubepods/pod1", "/../x", "/"}) {
    EXPECT_THAT(CgroupFolders(
                    "memory", absl::StrCat("4:memory:", path, "\n"),
                    "32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"),
                ElementsAre("/sys/fs/cgroup/memory"))
        << path;
  }
}

TEST(Cgroup, WhatCannotBeUnderstoodLimitsNothing) {
  for (const char* junk :
       {"", "\n\n", ":::", "0::", "garbage", "0::/\n0::/x", " - - -", "1 2 3 4 5 6 - cgroup2"}) {
    for (const char* mounts : {"", " - ", "a b c d e f - cgroup2 x y", kV2Mount}) {
      const CgroupLimits limits = FakeMachine(junk, mounts)
                                      .With("/sys/fs/cgroup/cpu.max", "0 0")
                                      .With("/sys/fs/cgroup/memory.max", "-5")
                                      .Limits();
      EXPECT_EQ(limits.cpu_quota, 0) << junk << mounts;
      EXPECT_EQ(limits.memory_bytes, 0) << junk << mounts;
    }
  }
}

}  // namespace
}  // namespace feedwater::server
