#include "server/storage/cached_reads.h"

#include <cerrno>

namespace feedwater::server {
namespace {

constexpr size_t kMostPieces = 256;     // of a system call; IOV_MAX is 1024
constexpr int64_t kMostGapBytes = 512;  // read and thrown away: less than a system call costs
constexpr int64_t kMostRunBytes = 1 << 20;

}  // namespace

bool CachedReads::Read(absl::Span<const CachedRead> reads) {
  static thread_local std::byte unwanted[kMostGapBytes];
  for (size_t i = 0; i < reads.size();) {
    const OpenedFile* const file = reads[i].file;
    const int64_t begin = reads[i].offset;
    int64_t end = begin;
    pieces_.clear();
    for (; i < reads.size() && reads[i].file == file; ++i) {
      const int64_t gap = reads[i].offset - end;
      const auto bytes = static_cast<int64_t>(reads[i].bytes);
      if (!pieces_.empty() && (gap < 0 || gap > kMostGapBytes || pieces_.size() + 2 > kMostPieces ||
                               bytes > kMostRunBytes - (end - begin) - gap)) {
        break;
      }
      if (gap > 0) pieces_.push_back({unwanted, static_cast<size_t>(gap)});
      pieces_.push_back({reads[i].to, reads[i].bytes});
      end += gap + bytes;
    }
    ++calls_;
    ssize_t got = 0;
    do {
      got = preadv2(file->fd.get(), pieces_.data(), static_cast<int>(pieces_.size()), begin,
                    RWF_NOWAIT);
    } while (got < 0 && errno == EINTR);
    if (got != end - begin) return false;
  }
  return true;
}

}  // namespace feedwater::server
