#include "server/cache/cache_folder.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "server/base/key.h"
#include "server/base/log_limiter.h"
#include "server/base/own_files.h"

namespace feedwater::server {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kJournalMagic = 0x314c4e4a43574600;  // "\0FWCJNL1"
constexpr absl::string_view kSegmentPrefix = "segment-";
constexpr size_t kDatasetDigits = 32;  // of a cache's name, before its form

// Whether the journal names this cache, however many records it is of.
bool HasJournalOf(const std::string& folder, const std::string& identity) {
  const std::string beginning =
      BeginningOf(absl::StrCat(folder, "/", kJournalName), sizeof(JournalHeader));
  if (beginning.empty()) return false;
  JournalHeader found;
  std::memcpy(&found, beginning.data(), sizeof(found));
  const JournalHeader wanted = MakeJournalHeader(identity, static_cast<int64_t>(found.records));
  return std::memcmp(&found, &wanted, sizeof(found)) == 0;
}

bool IsCacheName(absl::string_view name) {
  return IsKeyName(name.substr(0, kDatasetDigits)) &&
         absl::StartsWith(name.substr(kDatasetDigits), "-");
}

}  // namespace

JournalHeader MakeJournalHeader(const std::string& identity, int64_t records) {
  const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size());
  return {kJournalMagic, static_cast<uint64_t>(records), hash.low64, hash.high64};
}

std::string SegmentName(uint32_t number) {
  return absl::StrFormat("%s%05u", kSegmentPrefix, number);
}

bool IsSegmentName(absl::string_view name) {
  return absl::ConsumePrefix(&name, kSegmentPrefix) && name.size() >= 5 &&
         name.find_first_not_of("0123456789") == absl::string_view::npos;
}

void RemoveSegment(const std::string& path) {
  const absl::Status removed = RemoveOwnFile(path);
  if (removed.ok() || absl::IsNotFound(removed)) return;
  if (ClientLog().Admits("caches that cannot be deleted", LogLimiter::kNoSource))
    spdlog::warn("{}", std::string(removed.message()));
}

void RemoveSegments(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (IsSegmentName(entry.path().filename().native())) RemoveSegment(entry.path());
  }
}

std::optional<std::vector<SegmentFile>> FindSegments(const std::string& folder,
                                                     const std::string& identity) {
  std::vector<SegmentFile> segments;
  bool holds_more = false;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    struct stat info;
    const bool is_file = IsRegularFile(entry.path(), &info);
    if (is_file && IsSegmentName(name)) {
      segments.push_back({name, info.st_size});
    } else {
      holds_more = holds_more || !is_file || name != kJournalName;
    }
  }
  if (error) return std::nullopt;
  const bool looks_like_one = IsCacheName(identity) && !holds_more;
  if (!looks_like_one && !HasJournalOf(folder, identity)) return std::nullopt;
  std::sort(segments.begin(), segments.end(), [](const SegmentFile& a, const SegmentFile& b) {
    return std::make_pair(a.name.size(), a.name) < std::make_pair(b.name.size(), b.name);
  });
  return segments;
}

void RemoveCacheFolder(const std::string& folder) {
  RemoveSegments(folder);
  RemoveOwnFile(absl::StrCat(folder, "/", kJournalName)).IgnoreError();
  rmdir(folder.c_str());
}

}  // namespace feedwater::server
