#include "server/base/cgroup.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxAncestors = 64;

// mountinfo writes blanks, tabs, line breaks and backslashes of a path as \ooo.
std::string Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '7';
    };
    if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool HasWord(absl::string_view comma_list, absl::string_view word) {
  for (absl::string_view item : absl::StrSplit(comma_list, ',')) {
    if (item == word) return true;
  }
  return false;
}

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // where
};

// A line is "id parent major:minor root point options [optional...] - type source super_options".
bool FindMount(absl::string_view controller, absl::string_view mountinfo, Mount* mount) {
  for (absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == absl::string_view::npos) continue;
    const std::vector<absl::string_view> before = absl::StrSplit(line.substr(0, dash), ' ');
    const std::vector<absl::string_view> after = absl::StrSplit(line.substr(dash + 3), ' ');
    if (before.size() < 6 || after.size() < 3) continue;
    const bool is_it = controller.empty() ? after[0] == "cgroup2"
                                          : after[0] == "cgroup" && HasWord(after[2], controller);
    if (!is_it) continue;
    *mount = {Unescape(before[3]), Unescape(before[4])};
    return true;
  }
  return false;
}

// A line is "hierarchy:controllers:path", with no controllers for v2.
bool FindPath(absl::string_view controller, absl::string_view proc_cgroup, std::string* path) {
  for (absl::string_view line : absl::StrSplit(proc_cgroup, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool is_it =
        controller.empty() ? parts[0] == "0" && parts[1].empty() : HasWord(parts[1], controller);
    if (!is_it) continue;
    *path = std::string(parts[2]);
    return true;
  }
  return false;
}

void Tighten(double limit, double* least) {
  if (limit > 0 && (*least == 0 || limit < *least)) *least = limit;
}
void Tighten(int64_t limit, int64_t* least) {
  if (limit > 0 && (*least == 0 || limit < *least)) *least = limit;
}

// A limit file of one number; "max", -1 and huge values (v1's "unlimited" is a page below 2^63) are
// no limit.
bool ReadNumber(const FileReader& read, const std::string& path, int64_t* number) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  std::string text;
  return read(path, &text) && absl::SimpleAtoi(absl::StripAsciiWhitespace(text), number) &&
         *number > 0 && *number < kUnlimited;
}

}  // namespace

bool ReadSmallFile(const std::string& path, std::string* text) {
  constexpr size_t kMaxBytes = 1 << 20;
  std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), &fclose);
  if (file == nullptr) return false;
  text->clear();
  char part[4096];  // most of them are one number; every session that is opened asks for several
  size_t got;
  while (text->size() < kMaxBytes && (got = fread(part, 1, sizeof(part), file.get())) > 0) {
    text->append(part, got);
  }
  return ferror(file.get()) == 0;
}

std::vector<std::string> CgroupFolders(absl::string_view controller, absl::string_view proc_cgroup,
                                       absl::string_view mountinfo) {
  std::vector<std::string> folders;
  std::string path;
  Mount mount;
  if (!FindPath(controller, proc_cgroup, &path) || !FindMount(controller, mountinfo, &mount))
    return folders;
  // Inside a container the mounted root may be the group itself, or the path may lie outside what
  // is mounted ("/../x").
  absl::string_view below = path;
  if (mount.root != "/" && absl::ConsumePrefix(&below, mount.root)) {
    if (!below.empty() && below[0] != '/') below = "";
  } else if (mount.root != "/" || absl::StrContains(path, "..")) {
    below = "";
  }
  below = absl::StripSuffix(below, "/");
  while (!below.empty() && folders.size() < kMaxAncestors) {
    folders.push_back(absl::StrCat(mount.point, below));
    below = below.substr(0, below.rfind('/') == absl::string_view::npos ? 0 : below.rfind('/'));
  }
  folders.push_back(mount.point);
  return folders;
}

CgroupLimits ReadCgroupLimits(const FileReader& read) {
  CgroupLimits limits;
  std::string proc_cgroup, mountinfo;
  if (!read("/proc/self/cgroup", &proc_cgroup) || !read("/proc/self/mountinfo", &mountinfo))
    return limits;
  int64_t number, period;
  for (const std::string& folder : CgroupFolders("", proc_cgroup, mountinfo)) {
    std::string text;
    if (read(absl::StrCat(folder, "/cpu.max"), &text)) {  // "max 100000" or "150000 100000"
      const std::vector<absl::string_view> parts =
          absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
      if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &number) &&
          absl::SimpleAtoi(parts[1], &period) && number > 0 && period > 0) {
        Tighten(static_cast<double>(number) / static_cast<double>(period), &limits.cpu_quota);
      }
    }
    for (absl::string_view name : {"/memory.max", "/memory.high"}) {
      if (ReadNumber(read, absl::StrCat(folder, name), &number))
        Tighten(number, &limits.memory_bytes);
    }
  }
  for (const std::string& folder : CgroupFolders("cpu", proc_cgroup, mountinfo)) {
    if (ReadNumber(read, absl::StrCat(folder, "/cpu.cfs_quota_us"), &number) &&
        ReadNumber(read, absl::StrCat(folder, "/cpu.cfs_period_us"), &period)) {
      Tighten(static_cast<double>(number) / static_cast<double>(period), &limits.cpu_quota);
    }
  }
  for (const std::string& folder : CgroupFolders("memory", proc_cgroup, mountinfo)) {
    if (ReadNumber(read, absl::StrCat(folder, "/memory.limit_in_bytes"), &number)) {
      Tighten(number, &limits.memory_bytes);
    }
  }
  return limits;
}

uint64_t ReadOomKills(const FileReader& read) {
  std::string proc_cgroup, mountinfo, text;
  const auto count = [&](const std::string& path, uint64_t* kills) {
    if (!read(path, &text)) return false;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (absl::ConsumePrefix(&line, "oom_kill ")) return absl::SimpleAtoi(line, kills);
    }
    return false;
  };
  uint64_t kills = 0;
  if (read("/proc/self/cgroup", &proc_cgroup) && read("/proc/self/mountinfo", &mountinfo)) {
    constexpr const char* kFiles[][2] = {{"", "memory.events"}, {"memory", "memory.oom_control"}};
    for (const auto& [controller, name] : kFiles) {
      const std::vector<std::string> folders = CgroupFolders(controller, proc_cgroup, mountinfo);
      if (!folders.empty() && count(absl::StrCat(folders[0], "/", name), &kills)) return kills;
    }
  }
  count("/proc/vmstat", &kills);
  return kills;
}

}  // namespace feedwater::server
