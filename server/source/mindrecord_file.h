// What the header of a MindRecord file says, as MindSpore's mindrecord/io/shard_writer.cc writes
// it, versions 2.0 and 3.0. The file:
//
//   u64 length, JSON             the header, in room for `header_size` bytes
//   pages of `page_size` bytes   page N begins at header_size + N * page_size
//
// A RAW page holds rows, each u64 length and a MessagePack map of the columns that are no blob
// fields; a BLOB page holds the same rows' blobs, each u64 length and bytes. Rows stand in groups:
// one BLOB page is the blobs of one group, and a RAW page says at which of its bytes each of its
// groups begins. All numbers are little-endian, but for those inside a blob.
//
// The blob of a row with several blob fields is each field's length (u64, big-endian) and bytes.
// Version 3.0 packs the integers of arrays: their count (u32, big-endian), 2 bits for each that say
// how many bytes it has (1, 2, 4 or 8; the first integer in the highest bits), and these bytes.
//
// The index database that MindSpore writes beside the file (NAME.db) repeats where the rows lie and
// holds some columns for its own searches. Nothing in it is needed to read a row.
//
// Pure functions; any bytes are safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/columns.h"

namespace feedwater::server {

inline constexpr uint64_t kMindRecordLength = 8;                // bytes before JSON, row and blob
inline constexpr uint64_t kMaxMindRecordHeader = 128ull << 20;  // the most that MindSpore writes

struct MindRecordColumn {
  std::string name, type;  // "int64"
  bool has_shape = false;
  Shape shape;    // one axis at the most is -1
  int blob = -1;  // its number among the blob fields; -1: it is in the row's map
  bool operator==(const MindRecordColumn& other) const = default;
};

// How the blob fields of a row lie in its blob.
enum class MindRecordBlob : uint8_t {
  kPlain,   // as they are
  kPacked,  // int32 and int64 packed
  kMap,     // one MessagePack map of all of them, as the first releases of MindSpore wrote
};

// Rows that stand one behind the other, in the file's bytes.
struct MindRecordGroup {
  uint64_t rows = 0;
  uint64_t raw_begin = 0, raw_end = 0, blob_begin = 0, blob_end = 0;
};

struct MindRecordHeader {
  std::vector<MindRecordColumn> columns;  // sorted by name
  int blob_fields = 0;
  MindRecordBlob blob = MindRecordBlob::kPlain;
  std::vector<std::string> shard_names;  // all files of the set, in order
  uint64_t shard = 0;                    // which of them this file is
  std::vector<MindRecordGroup> groups;   // in the order of the rows
};

// The header whose JSON is `text`, of a file of so many bytes. Every range that it gives is within
// the file, and no two overlap. InvalidArgument that begins with a verb.
absl::StatusOr<MindRecordHeader> ParseMindRecordHeader(absl::string_view text, int64_t file_bytes);

// The integers of a packed array, whose length the bytes say.
class MindRecordIntegers {
 public:
  // DataLoss that begins with a verb.
  static absl::StatusOr<MindRecordIntegers> Open(absl::string_view packed);
  uint32_t size() const { return size_; }
  // Writes them as numbers of `bytes` bytes, 4 or 8, to `to`.
  absl::Status Unpack(size_t bytes, std::byte* to) const;

 private:
  uint32_t size_ = 0;
  absl::string_view widths_, values_;
};

}  // namespace feedwater::server
