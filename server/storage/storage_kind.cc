#include "server/storage/storage_kind.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/cgroup.h"

namespace feedwater::server {
namespace {

constexpr std::pair<StorageKind, absl::string_view> kNames[] = {
    {StorageKind::kUnknown, "unknown"}, {StorageKind::kMemory, "memory"},
    {StorageKind::kFlash, "flash"},     {StorageKind::kRotational, "rotational"},
    {StorageKind::kNetwork, "network"},
};

// A number in a file of sysfs; -1 when there is none.
int64_t NumberIn(const std::string& path) {
  std::string text;
  int64_t number = -1;
  if (!ReadSmallFile(path, &text) || !absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &number)) {
    return -1;
  }
  return number;
}

// Of a mount without a device number of its own (btrfs), that of the device that it names.
std::pair<uint32_t, uint32_t> DeviceOf(const Mount& mount) {
  struct stat info;
  if (mount.major != 0 || !absl::StartsWith(mount.source, "/dev/") ||
      stat(mount.source.c_str(), &info) != 0 || !S_ISBLK(info.st_mode)) {
    return {mount.major, mount.minor};
  }
  return {major(info.st_rdev), minor(info.st_rdev)};
}

}  // namespace

absl::string_view StorageKindName(StorageKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "unknown";
}

std::vector<std::string> StorageKindChoices() {
  std::vector<std::string> choices = {"auto"};
  for (const auto& entry : kNames) choices.emplace_back(entry.second);
  return choices;
}

std::optional<StorageKind> StorageKindOf(absl::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::optional<Mount> FindMount(absl::string_view mountinfo, uint64_t number) {
  for (absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t id = 0;
    if (words.size() < 3 || !absl::SimpleAtoi(words[0], &id) || id != number) continue;
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (std::distance(dash, words.end()) < 3) return std::nullopt;
    Mount mount{std::string(dash[1]), std::string(dash[2])};
    const std::pair<absl::string_view, absl::string_view> device = absl::StrSplit(words[2], ':');
    if (!absl::SimpleAtoi(device.first, &mount.major) ||
        !absl::SimpleAtoi(device.second, &mount.minor)) {
      return std::nullopt;
    }
    return mount;
  }
  return std::nullopt;
}

bool IsLocalType(absl::string_view type) {
  constexpr absl::string_view kLocal[] = {
      "ext2",     "ext3",    "ext4",  "xfs",   "btrfs",    "zfs",   "bcachefs",
      "f2fs",     "tmpfs",   "ramfs", "jfs",   "squashfs", "erofs", "udf",
      "devtmpfs", "iso9660", "vfat",  "exfat", "ntfs3",
      "overlay",  // as containers have it, over a local one
  };
  return std::find(std::begin(kLocal), std::end(kLocal), type) != std::end(kLocal);
}

Storage StorageOn(const Mount& mount, const std::string& sys) {
  Storage storage;
  if (mount.type == "tmpfs" || mount.type == "ramfs" || mount.type == "devtmpfs") {
    storage.kind = StorageKind::kMemory;
    storage.why = absl::StrCat(mount.type, " lies in memory");
    return storage;
  }
  const auto [major, minor] = DeviceOf(mount);
  const std::string device = absl::StrCat(sys, "/dev/block/", major, ":", minor);
  std::string queue = absl::StrCat(device, "/queue");
  int64_t rotational = NumberIn(queue + "/rotational");
  bool is_partition = false;
  if (rotational < 0) {  // a partition has the queue of its disk, in whose folder it lies
    queue = absl::StrCat(device, "/../queue");
    rotational = NumberIn(queue + "/rotational");
    is_partition = rotational >= 0;
  }
  if (rotational < 0) {
    const bool is_local = IsLocalType(mount.type);
    storage.kind = is_local || mount.type.empty() ? StorageKind::kUnknown : StorageKind::kNetwork;
    storage.why =
        mount.type.empty()
            ? "the kernel lists no mount for it"
            : absl::StrCat(mount.type, is_local ? " does not say which device lies below it"
                                                : " lies behind a network or a program");
    return storage;
  }
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::canonical(is_partition ? device + "/.." : device, error);
  if (!error) storage.device = folder.filename().string();
  storage.kind = rotational != 0 ? StorageKind::kRotational : StorageKind::kFlash;
  storage.why = absl::StrCat(storage.device.empty() ? mount.source : storage.device,
                             "'s queue/rotational is ", rotational,
                             rotational != 0 && absl::StartsWith(storage.device, "vd")
                                 ? ", as virtual disks have it whatever lies below them"
                                 : "");
  const int64_t kib =
      std::max(NumberIn(queue + "/read_ahead_kb"), NumberIn(queue + "/max_sectors_kb"));
  if (kib > 0 && kib <= 1 << 20) storage.ahead_bytes = std::max<int64_t>(kib << 10, 4096);
  return storage;
}

ReadHabits HabitsOf(StorageKind kind) {
  switch (kind) {
    case StorageKind::kRotational:
      return {1 << 20, true};  // 8 ms at 150 MB/s
    case StorageKind::kNetwork:
      return {256 << 10, true};  // half a millisecond at 500 MB/s
    case StorageKind::kUnknown:
    case StorageKind::kMemory:
    case StorageKind::kFlash:
      break;
  }
  return {4096, false};  // a page is copied in less time than a system call takes
}

double CostModel::Seconds(double reads, double bytes, double seeks) const {
  if (reads <= 0) return 0;
  const double each =
      request_bytes <= 0 ? 1 : std::ceil(bytes / reads / static_cast<double>(request_bytes));
  return seeks * seek_s + reads * std::max(each, 1.0) * request_s +
         (bytes_per_s <= 0 ? 0 : bytes / bytes_per_s);
}

CostModel CostsOf(StorageKind kind) {
  switch (kind) {
    case StorageKind::kRotational:
      return {.seek_s = 8e-3, .bytes_per_s = 150e6};
    case StorageKind::kNetwork:
      return {.request_s = 1e-3, .bytes_per_s = 1e9, .request_bytes = 1 << 20};
    case StorageKind::kMemory:
      return {.request_s = 1e-6, .bytes_per_s = 8e9};
    case StorageKind::kUnknown:
    case StorageKind::kFlash:
      break;
  }
  return {.request_s = 80e-6, .bytes_per_s = 2e9};
}

}  // namespace feedwater::server
