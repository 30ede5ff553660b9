#include "server/storage/mounts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace feedwater::server {
namespace {

constexpr size_t kMostKnown = 1024;

// rename(2), also one that exchanges two files, and link(2) set the change time of the file in
// these. XFS does not where files are exchanged, FAT has no such time, what a file server does is
// its own, and what lies below an overlay is not known.
constexpr absl::string_view kShowMoves[] = {"ext2", "ext3", "ext4", "btrfs", "f2fs", "tmpfs"};

// Not with ReadSmallFile: a host with thousands of mounts has a long one.
std::string MountInfo() {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::shared_ptr<const MountFacts> FactsOfMount(int fd) {
  struct statx info = {};
  // DONT_SYNC: what is known here, without a question to the file system.
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &info) != 0 ||
      (info.stx_mask & STATX_MNT_ID) == 0) {
    static const auto* unknown = new std::shared_ptr<const MountFacts>(
        std::make_shared<const MountFacts>());  // a kernel before 5.8
    return *unknown;
  }
  // A number can come again for another mount; its device hardly does.
  const uint64_t device = uint64_t{info.stx_dev_major} << 32 | info.stx_dev_minor;
  static Mutex mu;
  static auto* known =
      new std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const MountFacts>>;
  const std::pair<uint64_t, uint64_t> key(info.stx_mnt_id, device);
  {
    MutexLock lock(&mu);
    const auto found = known->find(key);
    if (found != known->end()) return found->second;
  }
  auto facts = std::make_shared<MountFacts>();
  facts->mount = FindMount(MountInfo(), info.stx_mnt_id).value_or(Mount());
  facts->is_local = IsLocalType(facts->mount.type);
  facts->shows_moves = absl::c_linear_search(kShowMoves, facts->mount.type);
  facts->device = makedev(info.stx_dev_major, info.stx_dev_minor);
  facts->storage = StorageOn(facts->mount);
  MutexLock lock(&mu);
  if (known->size() >= kMostKnown) known->clear();
  known->emplace(key, facts);
  return facts;
}

}  // namespace feedwater::server
