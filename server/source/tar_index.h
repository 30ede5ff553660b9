// Where the records of a tar shard begin, in a file beside it: SHARD.tar.fwidx. `feedwater convert`
// and `materialize` write it, so that the format webdataset opens a shard without a read for each
// member's header, which storage far away would take hours for. It is a hint: FitsTar looks at some
// of the records, and each record proves itself when it is read (one key, whole members); where it
// does not fit, the shard is scanned as if it were not there.
//
// Little-endian: u32 magic "FWTI", u32 version, u64 XXH3 of everything behind it, u64 bytes of the
// tar, u64 records, u64 end (the block behind the last record), u32 extensions, for each u32 length
// and the text, for each record u32: blocks (512 bytes) from the begin of the one before, at first
// from the archive's begin.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/tar.h"

namespace feedwater::server {

struct TarIndex {
  static constexpr const char* kSuffix = ".fwidx";
  static constexpr size_t kMostExtensions = 1000;
  // Of the text, for a shard of so many bytes.
  static int64_t MostBytes(int64_t tar_bytes) { return tar_bytes / kTarBlock * 4 + (64 << 10); }
  // Of memory that Parse takes for so many bytes of text.
  static int64_t ParsedBytes(int64_t text_bytes) { return 3 * text_bytes; }

  int64_t tar_bytes = 0;
  std::vector<uint64_t> begins;  // block of each record's first header
  uint64_t end = 0;              // block behind the last record
  std::set<std::string> extensions;

  // The next record, whose members, as they stand in the archive, begin at this offset.
  absl::Status Add(int64_t offset, absl::string_view members);
  std::string Text() const;
  // DataLoss with the reason where the bytes are no such index, or blocks are not in order.
  static absl::StatusOr<TarIndex> Parse(absl::string_view text);

  // DataLoss where the archive is another one, as far as a look at a few of its records can tell.
  absl::Status FitsTar(const TarReader::ReadAt& read, int64_t tar_bytes) const;

 private:
  absl::Status FitsRecord(const TarReader::ReadAt& read, int64_t begin, int64_t behind) const;
};

}  // namespace feedwater::server
