// What the control groups of a process allow, read from text so that tests can bring their own.
// Internal to base.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace feedwater::server {

// Reads a whole small file; false when there is none.
using FileReader = std::function<bool(const std::string& path, std::string* text)>;
bool ReadSmallFile(const std::string& path, std::string* text);

struct CgroupLimits {
  double cpu_quota = 0;      // CPUs; 0 when unlimited
  int64_t memory_bytes = 0;  // 0 when unlimited
};

// The tightest limits of this process's groups (v1 and v2, side by side as well) and of all their
// visible ancestors. Whatever cannot be read or understood limits nothing.
CgroupLimits ReadCgroupLimits(const FileReader& read);

// How many processes the kernel has ended for want of memory: in this process's own group, or on
// the whole machine where no group says.
uint64_t ReadOomKills(const FileReader& read);

// The folders, innermost first, that hold the limit files of one controller ("cpu", "memory"; ""
// for v2).
std::vector<std::string> CgroupFolders(absl::string_view controller, absl::string_view proc_cgroup,
                                       absl::string_view mountinfo);

}  // namespace feedwater::server
