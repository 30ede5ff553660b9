#include "server/source/staged_locks.h"

#include <fcntl.h>

#include "absl/strings/numbers.h"
#include "server/source/digest.h"

namespace feedwater::server {

bool LockByte(int held, absl::string_view name, int16_t type) {
  Digest digest;
  digest.Add(name);
  uint64_t number = 0;
  (void)absl::SimpleHexAtoi(digest.Hex().substr(0, 15), &number);  // a positive offset
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(number);
  lock.l_len = 1;
  return fcntl(held, F_OFD_SETLK, &lock) == 0;
}

bool IsRead(int held) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;  // of all bytes
  return fcntl(held, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace feedwater::server
