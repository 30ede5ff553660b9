// A file of a local disk as memory, for records that are copied as they lie there. Touching a page
// that the file has no more, or that the disk does not give, raises SIGBUS: CopyMapped survives it
// and says that nothing was copied; an ordinary read then tells why.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"

namespace feedwater::server {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // The first `size` bytes of the file, mapped at the first call. Empty: it cannot be mapped.
  absl::Span<const std::byte> Get(int fd, int64_t size) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  mutable bool is_tried_ ABSL_GUARDED_BY(mu_) = false;
  mutable absl::Span<const std::byte> bytes_ ABSL_GUARDED_BY(mu_);
};

struct MappedCopy {
  const std::byte* from = nullptr;  // in a MappedFile that stays alive
  std::byte* to = nullptr;
  size_t bytes = 0;
};
// False: some of the bytes are not there, and what stands in the places of all is undefined.
bool CopyMapped(absl::Span<const MappedCopy> copies);

}  // namespace feedwater::server
