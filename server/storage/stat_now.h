// What a file is now. fstat(2) answers for NFS and FUSE from what the kernel keeps of earlier
// answers, for seconds or longer; this asks the file system itself, and may hang with it. Of local
// files it costs what fstat(2) costs.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace feedwater::server {

// As fstat(2), also of a descriptor that was opened with O_PATH. Of `info` device, inode, size,
// mode, links, owner and times are set.
int StatNow(int fd, struct stat* info);

// A file's time as one number.
inline int64_t Nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace feedwater::server
