// The records of an LMDB file (data.mdb), found by walking its B+tree: where each key and value is,
// in the order of keys. Written here because the lmdb library maps the file: a file that is cut
// off under a map ends the process. Format of LMDB 0.9 on 64-bit little-endian machines (lmdb.h,
// mdb.c: MDB_page, MDB_node, MDB_meta).
//
// Any bytes are safe. A page is looked at once, so that pages that lead back to others are found;
// a walk takes as many reads as there are branch and leaf pages.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"

namespace feedwater::server {

inline constexpr size_t kLmdbPageHeader = 16;
inline constexpr uint32_t kLmdbMaxPage = 1 << 16;  // bytes

struct LmdbRecord {
  uint64_t leaf = 0;       // page that holds the key
  uint32_t key_at = 0;     // in that page
  uint32_t key_bytes = 0;  // and the value behind it, unless it is large
  uint64_t overflow = 0;   // first page of a large value; 0: it is in the leaf
  uint64_t value_bytes = 0;
  absl::string_view key;  // valid during the call
};

class LmdbFile {
 public:
  // Puts [offset, offset + bytes) at `to`. REQUIRES: within the file.
  using ReadAt = std::function<absl::Status(int64_t offset, char* to, size_t bytes)>;

  // Reads the newest whole one of the two meta pages. DataLoss, without the file's name: no such
  // file, another version, several databases, several values of one key.
  static absl::StatusOr<LmdbFile> Open(ReadAt read, int64_t file_bytes);

  uint32_t page_bytes() const { return page_bytes_; }
  uint64_t pages() const { return static_cast<uint64_t>(file_bytes_) / page_bytes_; }
  uint64_t entries() const { return entries_; }
  // Calls `found` for every record. DataLoss that names the page.
  absl::Status Walk(const std::function<absl::Status(const LmdbRecord&)>& found) const;

 private:
  LmdbFile(ReadAt read, int64_t file_bytes) : read_(std::move(read)), file_bytes_(file_bytes) {}

  bool ReadMeta(const char* page, uint32_t page_bytes, absl::Status* wrong);

  ReadAt read_;
  int64_t file_bytes_;
  uint32_t page_bytes_ = 0;
  uint64_t transaction_ = 0, entries_ = 0, root_ = 0;
  uint32_t depth_ = 0, flags_ = 0;
  bool is_known_ = false;  // one meta page was whole
};

// Whether the first bytes of a large value's page say so: it is page `page`, and `value_bytes` fit
// into its pages. `header` has kLmdbPageHeader bytes.
bool IsLmdbOverflow(const char* header, uint64_t page, uint64_t value_bytes, uint32_t page_bytes);

}  // namespace feedwater::server
