#include "server/base/cpus.h"

#include <numa.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/cgroup.h"
#include "server/base/status.h"
#include "server/base/yaml.h"

namespace feedwater::server {
namespace {

constexpr int kMaxCpus = 4096;

struct CpuSet {  // cpu_set_t for kMaxCpus CPUs; the fixed one ends at 1024
  CpuSet() : bits(CPU_ALLOC(kMaxCpus), [](cpu_set_t* set) { CPU_FREE(set); }) {
    if (bits != nullptr) CPU_ZERO_S(kBytes, bits.get());
  }
  static constexpr size_t kBytes = CPU_ALLOC_SIZE(kMaxCpus);
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> bits;
};

absl::StatusOr<std::vector<int>> AffinityMask() {
  CpuSet set;
  if (set.bits == nullptr || sched_getaffinity(0, CpuSet::kBytes, set.bits.get()) != 0) {
    return ErrnoStatus(errno, "cannot read the CPU affinity mask");
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, CpuSet::kBytes, set.bits.get())) cpus.push_back(cpu);
  }
  return cpus;
}

bool HasNuma() { return numa_available() >= 0; }

bool NodeExists(int node) {
  return HasNuma() && node >= 0 && node <= numa_max_node() &&
         numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(node));
}

std::string ExistingNodes() {
  std::vector<int> nodes;
  for (int node = 0; HasNuma() && node <= numa_max_node(); ++node) {
    if (NodeExists(node)) nodes.push_back(node);
  }
  return nodes.empty() ? "none" : FormatCpuList(nodes);
}

// The CPUs of `mask` that belong to the node; the whole mask for node -1.
absl::StatusOr<std::vector<int>> CpusOfNode(const std::vector<int>& mask, int node) {
  if (node < 0) return mask;
  if (!NodeExists(node)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NUMA node ", node, " does not exist; existing: ", ExistingNodes()));
  }
  std::vector<int> cpus;
  for (int cpu : mask) {
    if (numa_node_of_cpu(cpu) == node) cpus.push_back(cpu);
  }
  if (cpus.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NUMA node ", node, " has none of the CPUs that this process may use (",
                     FormatCpuList(mask), ")"));
  }
  return cpus;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text) {
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be a list of CPUs such as 0-3,8, not '", Printable(text), "'", why));
  };
  const auto number = [](absl::string_view digits, int* value) {
    for (char c : digits) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
    }
    return absl::SimpleAtoi(digits, value);
  };
  std::vector<bool> seen(kMaxCpus);
  std::vector<int> cpus;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first, last;
    if (!number(ends.front(), &first) || !number(ends.back(), &last)) return error("");
    if (first >= kMaxCpus || last >= kMaxCpus)
      return error(absl::StrCat(": CPUs end at ", kMaxCpus - 1));
    if (last < first) return error(": a range runs backwards");
    for (int cpu = first; cpu <= last; ++cpu) {
      if (seen[cpu]) return error(absl::StrCat(": CPU ", cpu, " stands there twice"));
      seen[cpu] = true;
      cpus.push_back(cpu);
    }
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::string FormatCpuList(const std::vector<int>& cpus) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    parts.push_back(end == i + 1 ? absl::StrCat(cpus[i])
                                 : absl::StrCat(cpus[i], "-", cpus[end - 1]));
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

absl::StatusOr<std::vector<int>> ChooseCpus(absl::string_view cpus, int numa_node) {
  FW_ASSIGN_OR_RETURN(const std::vector<int> mask, AffinityMask());
  FW_ASSIGN_OR_RETURN(std::vector<int> available, CpusOfNode(mask, numa_node));
  const absl::string_view text = absl::StripAsciiWhitespace(cpus);

  if (text == "auto") {
    size_t count = available.size();
    if (const double quota = CgroupCpuQuota(); quota > 0) {
      count = std::min(count, static_cast<size_t>(std::max(1.0, std::floor(quota + 0.01))));
    }
    count -= count / 8;  // CPUs left to the trainers' own threads
    available.resize(std::max<size_t>(count, 1));
    return available;
  }

  const bool is_list = text.find_first_of(",-") != absl::string_view::npos;
  if (!is_list) {
    int64_t count;
    if (!absl::SimpleAtoi(text, &count) || text[0] == '+') {
      return absl::InvalidArgumentError(absl::StrCat(
          "must be auto, a count, or a list of CPUs such as 0-3,8, not '", Printable(text), "'"));
    }
    if (count < 1 || count > static_cast<int64_t>(available.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("must be a count from 1 to ", available.size(), ", not ", count,
                       "; the CPUs that exist for this process: ", FormatCpuList(available)));
    }
    available.resize(static_cast<size_t>(count));
    return available;
  }

  FW_ASSIGN_OR_RETURN(std::vector<int> chosen, ParseCpuList(text));
  std::vector<int> missing;
  for (int cpu : chosen) {
    if (!std::binary_search(mask.begin(), mask.end(), cpu)) missing.push_back(cpu);
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("must lie within the CPUs that exist for this process (", FormatCpuList(mask),
                     "), which ", FormatCpuList(missing), " does not"));
  }
  return chosen;
}

absl::StatusOr<int> ChooseNumaNode(absl::string_view text) {
  if (text == "none") return -1;
  if (text == "auto") {
    if (!HasNuma() || numa_num_configured_nodes() < 2) return -1;
    FW_ASSIGN_OR_RETURN(const std::vector<int> mask, AffinityMask());
    // The node that has most of this process's CPUs, the lowest one of equals.
    std::vector<int> counts(static_cast<size_t>(numa_max_node()) + 1);
    for (int cpu : mask) {
      const int node = numa_node_of_cpu(cpu);
      if (node >= 0 && node <= numa_max_node()) ++counts[static_cast<size_t>(node)];
    }
    const auto most = std::max_element(counts.begin(), counts.end());
    return *most == 0 ? -1 : static_cast<int>(most - counts.begin());
  }
  int node;
  if (!absl::SimpleAtoi(text, &node) || node < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "must be auto, none or the number of a NUMA node, not '", Printable(text), "'"));
  }
  // A kernel without NUMA, or a filter that hides it: the whole machine is what node 0 would be.
  if (node == 0 && !HasNuma()) return -1;
  if (!NodeExists(node)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NUMA node ", node, " does not exist; existing: ", ExistingNodes()));
  }
  return node;
}

double CgroupCpuQuota() { return ReadCgroupLimits(ReadSmallFile).cpu_quota; }

int64_t MemoryLimitBytes() {
  int64_t limit = std::numeric_limits<int64_t>::max();
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  int64_t machine;
  if (pages > 0 && page_bytes > 0 && !__builtin_mul_overflow(pages, page_bytes, &machine))
    limit = machine;
  const int64_t cgroup = ReadCgroupLimits(ReadSmallFile).memory_bytes;
  return cgroup > 0 ? std::min(limit, cgroup) : limit;
}

uint64_t OomKills() { return ReadOomKills(ReadSmallFile); }

absl::Status PinThisThread(int cpu) {
  if (cpu < 0 || cpu >= kMaxCpus)
    return absl::InvalidArgumentError(absl::StrCat("there is no CPU ", cpu));
  CpuSet set;
  if (set.bits == nullptr) return absl::ResourceExhaustedError("no memory for a CPU mask");
  CPU_SET_S(cpu, CpuSet::kBytes, set.bits.get());
  const int error = pthread_setaffinity_np(pthread_self(), CpuSet::kBytes, set.bits.get());
  if (error != 0) return ErrnoStatus(error, absl::StrCat("cannot pin a thread to CPU ", cpu));
  return absl::OkStatus();
}

}  // namespace feedwater::server
