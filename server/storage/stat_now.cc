#include "server/storage/stat_now.h"

#include <fcntl.h>
#include <sys/sysmacros.h>

namespace feedwater::server {
namespace {

timespec TimeOf(const struct statx_timestamp& time) { return {time.tv_sec, time.tv_nsec}; }

}  // namespace

int StatNow(int fd, struct stat* info) {
  struct statx now = {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &now) != 0) return -1;
  *info = {};
  info->st_dev = makedev(now.stx_dev_major, now.stx_dev_minor);
  info->st_ino = now.stx_ino;
  info->st_size = static_cast<off_t>(now.stx_size);
  info->st_mode = now.stx_mode;
  info->st_nlink = now.stx_nlink;
  info->st_uid = now.stx_uid;
  info->st_gid = now.stx_gid;
  info->st_atim = TimeOf(now.stx_atime);
  info->st_mtim = TimeOf(now.stx_mtime);
  info->st_ctim = TimeOf(now.stx_ctime);
  return 0;
}

}  // namespace feedwater::server
