#include "server/source/saved_indexes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/base/own_files.h"
#include "server/base/status.h"
#include "spdlog/spdlog.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

void DropOldest(const fs::path& kept, const SavedIndexLimits& limits) {
  struct Saved {
    fs::path path;
    std::pair<time_t, long> used;
    int64_t bytes;
  };
  std::vector<Saved> others;
  ForeignEntries foreign(absl::StrCat(kept.parent_path().string(), "/*.index"));
  std::error_code error;
  int64_t bytes = static_cast<int64_t>(fs::file_size(kept, error));
  for (const fs::directory_entry& entry : fs::directory_iterator(kept.parent_path(), error)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".index" || path == kept) continue;
    struct stat info;
    if (!IsKeyName(path.stem().native()) || !IsRegularFile(path, &info)) {
      foreign.Add(path.filename());  // or another thread has just removed it
      continue;
    }
    bytes += info.st_size;
    others.push_back({path, {info.st_atim.tv_sec, info.st_atim.tv_nsec}, info.st_size});
  }
  if (others.size() < limits.files && bytes <= limits.bytes) return;
  std::erase_if(others, [&](const Saved& saved) {  // only now: each is opened for it
    if (IsIndexFile(saved.path)) return false;
    bytes -= saved.bytes;
    foreign.Add(saved.path.filename());
    return true;
  });
  foreign.Report();
  std::sort(others.begin(), others.end(),
            [](const Saved& a, const Saved& b) { return a.used < b.used; });
  size_t files = others.size() + 1;
  for (const Saved& oldest : others) {
    if (files <= limits.files && bytes <= limits.bytes) return;
    fs::remove(oldest.path, error);
    --files;
    bytes -= oldest.bytes;
  }
}

}  // namespace

void SaveIndexInFolder(const Index& index, const std::string& file,
                       const SavedIndexLimits& limits) {
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  const absl::Status saved =
      error ? ErrnoStatus(error.value(), "creating the folder of saved indexes")
            : SaveIndex(index, file);
  if (saved.ok()) return DropOldest(file, limits);
  if (ClientLog().Admits("indexes not saved", LogLimiter::kNoSource))
    spdlog::warn("index not saved, the next start builds it again: {}", saved.ToString());
}

void TouchSavedIndex(const std::string& file) {
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW);  // a hint, nothing else
}

}  // namespace feedwater::server
