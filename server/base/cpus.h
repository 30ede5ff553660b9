// Which CPUs, NUMA node and memory this process may use: affinity mask, cgroup v1 and v2 limits,
// libnuma.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

absl::StatusOr<std::vector<int>> ParseCpuList(
    absl::string_view text);  // "0-3,8" -> {0,1,2,3,8}; at most 4096, no duplicates
std::string FormatCpuList(const std::vector<int>& cpus);  // the reverse, ranges folded

// `cpus`: "auto", a count, or a list. auto = the CPUs of `numa_node` (-1: any) in the affinity
// mask, no more than the cgroup quota allows, less a reserve for the trainers' own threads of one
// in eight (at least 0, so that 4 CPUs keep 4 workers). A count takes that many of them. A list
// must lie within the mask. Error: InvalidArgument naming the CPUs that exist.
absl::StatusOr<std::vector<int>> ChooseCpus(absl::string_view cpus, int numa_node);

// "auto" (-1 on one-node machines), "none" (-1), or a node that exists; -1 for node 0 where the
// kernel has no NUMA.
absl::StatusOr<int> ChooseNumaNode(absl::string_view text);
double CgroupCpuQuota();     // CPUs; 0 when unlimited
int64_t MemoryLimitBytes();  // the least of the cgroup's limit (v1 and v2, ancestors too) and the
                             // machine's memory
// Processes that the kernel has ended for want of memory: in this process's control group, or on
// the whole machine where no group says; 0 where that is not known.
uint64_t OomKills();
absl::Status PinThisThread(int cpu);

}  // namespace feedwater::server
