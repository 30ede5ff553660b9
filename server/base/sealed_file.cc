#include "server/base/sealed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/base/units.h"

// Newer than Debian 12's headers.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace feedwater::server {
namespace {

// The machine's fault, whatever the kernel's word for it.
absl::Status NoMemory(int error, const char* name, int64_t bytes) {
  const absl::Status status =
      ErrnoStatus(error, absl::StrCat("making ", FormatBytes(bytes), " of memory for ", name));
  return absl::ResourceExhaustedError(status.message());
}

}  // namespace

absl::StatusOr<Fd> MakeSealedFile(const char* name, int64_t bytes, bool allocate) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create(name, kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = Fd(memfd_create(name, kFlags));  // kernel < 6.3
  if (!fd || ftruncate(fd.get(), bytes) != 0) return NoMemory(errno, name, bytes);
  while (allocate && fallocate(fd.get(), 0, 0, bytes) != 0) {
    if (errno != EINTR) return NoMemory(errno, name, bytes);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return NoMemory(errno, name, bytes);
  return fd;
}

}  // namespace feedwater::server
