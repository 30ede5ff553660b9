// The cursor that a client saves with its model and shows again to continue: one JSON object of at
// most 1 KiB.
//
//   {"version":1,"dataset":"<32 hex>","pipeline":"<32
//   hex>","seed":7,"epoch":3,"position":81920,"world_size":4,
//    "batch_size":256,"substituted":0,"crc32c":1234567890}
//
// crc32c is the CRC32C of the same object without that key in canonical form: keys sorted, "," and
// ":" without spaces. Clients write cursors; the daemon only checks them. It comes from outside:
// any bytes are safe here.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater::server {

inline constexpr size_t kMaxCursorBytes = 1024;
inline constexpr int64_t kCursorVersion = 1;

struct Cursor {
  std::string dataset, pipeline;  // digests
  uint64_t seed = 0;
  uint64_t epoch = 0;
  int64_t position = 0;  // global, within the epoch
  int64_t world_size = 1;
  int64_t batch_size = 1;
  uint64_t substituted = 0;
};

// InvalidArgument when it is malformed, damaged (CRC), or of an unknown version (both versions
// named).
absl::StatusOr<Cursor> ParseCursor(absl::string_view text);
std::string FormatCursor(const Cursor& cursor);

// What a cursor must agree with to be continued here.
struct CursorTarget {
  std::string pipeline_name;
  std::string dataset_digest, pipeline_digest;
  uint64_t seed = 0;
  int64_t world_size = 0;  // 0: any
};
// FailedPrecondition naming the field that differs, with both values. Another world size or batch
// size is fine, since the order is global, except where each rank makes its records itself. Whether
// the position is one of its epoch: CheckStart.
absl::Status CheckCursor(const Cursor& cursor, const CursorTarget& target);

}  // namespace feedwater::server
