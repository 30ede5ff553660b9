#include "server/storage/mounts.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace feedwater::server {
namespace {

constexpr size_t kMostKnown = 1024;

bool IsLocalType(absl::string_view type) {
  constexpr absl::string_view kLocal[] = {
      "ext2",     "ext3",    "ext4",  "xfs",   "btrfs",    "zfs",   "bcachefs",
      "f2fs",     "tmpfs",   "ramfs", "jfs",   "squashfs", "erofs", "udf",
      "devtmpfs", "iso9660", "vfat",  "exfat", "ntfs3",
      "overlay",  // as containers have it, over a local one
  };
  for (absl::string_view local : kLocal) {
    if (type == local) return true;
  }
  return false;
}

// The type of the mount with this number; "" when there is none.
std::string TypeOf(uint64_t mount) {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    uint64_t id = 0;
    if (!(words >> id) || id != mount) continue;
    for (std::string word; words >> word;) {
      if (word == "-") return words >> word ? word : "";
    }
  }
  return "";
}

}  // namespace

bool IsLocalMount(int fd) {
  struct statx info = {};
  // DONT_SYNC: what is known here, without a question to the file system.
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &info) != 0 ||
      (info.stx_mask & STATX_MNT_ID) == 0) {
    return false;  // a kernel before 5.8
  }
  // A number can come again for another mount; its device hardly does.
  const uint64_t device = uint64_t{info.stx_dev_major} << 32 | info.stx_dev_minor;
  static Mutex mu;
  static auto* known = new std::map<std::pair<uint64_t, uint64_t>, bool>;
  const std::pair<uint64_t, uint64_t> key(info.stx_mnt_id, device);
  {
    MutexLock lock(&mu);
    const auto found = known->find(key);
    if (found != known->end()) return found->second;
  }
  const bool is_local = IsLocalType(TypeOf(info.stx_mnt_id));
  MutexLock lock(&mu);
  if (known->size() >= kMostKnown) known->clear();
  known->emplace(key, is_local);
  return is_local;
}

}  // namespace feedwater::server
