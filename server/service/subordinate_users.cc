#include "server/service/subordinate_users.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/service/access.h"

namespace feedwater::server {
namespace {

constexpr size_t kMaxRanges = 65536;

}  // namespace

void SubordinateUsers::Refresh() {
  struct stat file;
  int64_t changed_ns = 0;
  if (stat(path_.c_str(), &file) == 0)
    changed_ns = file.st_mtim.tv_sec * 1'000'000'000LL + file.st_mtim.tv_nsec;
  {
    MutexLock lock(&mu_);
    if (changed_ns == changed_ns_) return;
  }
  std::stringstream text;
  if (changed_ns != 0) text << std::ifstream(path_).rdbuf();
  Ranges ranges = Parse(text.str());
  MutexLock lock(&mu_);
  ranges_ = std::move(ranges);
  changed_ns_ = changed_ns;
}

// Lines of NAME:START:COUNT; what is none is passed over, as the tools of shadow do.
SubordinateUsers::Ranges SubordinateUsers::Parse(absl::string_view text) {
  Ranges ranges;
  std::map<std::string, uid_t, std::less<>> owners;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, ':');
    uint32_t start = 0, count = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &start) ||
        !absl::SimpleAtoi(parts[2], &count) || start == 0 || count == 0)
      continue;
    auto known = owners.find(parts[0]);
    if (known == owners.end()) {
      const auto owner = FindUser(parts[0]);
      if (!owner.ok()) continue;
      known = owners.emplace(parts[0], *owner).first;
    }
    ranges.emplace(start, Range{uint64_t{start} + count, known->second});
    if (ranges.size() >= kMaxRanges) break;
  }
  return ranges;
}

uid_t SubordinateUsers::OwnerOf(uid_t uid) const {
  MutexLock lock(&mu_);
  auto after = ranges_.upper_bound(uid);
  if (after == ranges_.begin()) return uid;
  const Range& range = std::prev(after)->second;
  return uid < range.end ? range.owner : uid;
}

}  // namespace feedwater::server
