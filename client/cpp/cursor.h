// Where a rank stands in its job's order: what a trainer saves with its checkpoint.
// server/service/cursor.h reads it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater {

struct Cursor {
  std::string dataset, pipeline;  // digests
  uint64_t seed = 0, epoch = 0;
  int64_t position = 0;  // next global position within the epoch
  int64_t world_size = 1, batch_size = 0;
  int64_t substituted = 0;  // samples substituted so far

  // One line of JSON with a CRC32C over the line without it (keys sorted, no blanks), at most 1
  // KiB.
  std::string ToJson() const;
};

}  // namespace feedwater
