#include "server/source/missing_path.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/escape.h"

namespace feedwater::server {
namespace {

constexpr size_t kMostNames = 3;
constexpr int kMostLookedAt = 10'000;

// The letters that both begin with and both end with, capital or not.
size_t Likeness(absl::string_view a, absl::string_view b) {
  const auto same = [](char x, char y) { return absl::ascii_tolower(x) == absl::ascii_tolower(y); };
  const size_t most = std::min(a.size(), b.size());
  size_t front = 0, back = 0;
  while (front < most && same(a[front], b[front])) ++front;
  while (back < most - front && same(a[a.size() - 1 - back], b[b.size() - 1 - back])) ++back;
  return front + back;
}

}  // namespace

std::string Neighbours(const DatasetLocation& missing) {
  std::string folder = missing.path, name;
  do {
    if (folder.empty()) return "";
    const size_t slash = folder.rfind('/');
    name = slash == std::string::npos ? folder : folder.substr(slash + 1);
    folder.resize(slash == std::string::npos ? 0 : slash);
  } while (!missing.root->Stat(folder).ok());
  if (missing.root->Stat(DatasetLocation::JoinPath(folder, name)).ok()) return "";

  absl::StatusOr<Fd> fd = missing.root->OpenFolder(folder);
  if (!fd.ok()) return "";
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fdopendir(fd->get()), closedir);
  if (list == nullptr) return "";
  fd->release();
  std::vector<std::pair<size_t, std::string>> names;
  for (int i = 0; i < kMostLookedAt; ++i) {
    const dirent* const entry = readdir(list.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names.emplace_back(Likeness(name, entry->d_name), entry->d_name);
  }
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (names.size() > kMostNames) names.resize(kMostNames);
  if (names.empty()) return "";
  const std::string where = folder.empty() ? "" : absl::StrCat(" in '", Printable(folder), "'");
  return absl::StrCat("; there is ",
                      absl::StrJoin(names, ", ",
                                    [](std::string* out, const auto& found) {
                                      absl::StrAppend(out, "'", Printable(found.second), "'");
                                    }),
                      where);
}

}  // namespace feedwater::server
