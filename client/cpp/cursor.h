// Where a rank stands in its job's order: what a trainer saves with its checkpoint, and what it has
// asked to leave out. The Python client reads and writes the same states
// (client/python/feedwater/cursor.py); server/service/cursor.h reads version 1, all that travels to
// the daemon.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace feedwater {

// The next sample: global position `position` of epoch `epoch`.
struct EpochPosition {
  uint64_t epoch = 0;
  int64_t position = 0;
  friend bool operator==(const EpochPosition& a, const EpochPosition& b) {
    return a.epoch == b.epoch && a.position == b.position;
  }
};

// Positions [first, end) of an epoch that are left out.
struct SkippedRange {
  uint64_t epoch = 0;
  int64_t first = 0, end = 0;
};

struct Cursor {
  std::string dataset, pipeline;  // digests
  uint64_t seed = 0;
  EpochPosition at;
  int64_t world_size = 1, batch_size = 0;
  int64_t substituted = 0;          // samples substituted so far
  std::vector<SkippedRange> skips;  // sorted, apart from each other, at most kMaxSkips

  static constexpr size_t kMaxSkips = 8;
  static constexpr size_t kMaxBytes = 1024;

  // Reads a saved state. InvalidArgument naming the field when it is no state, of an unknown
  // version, or damaged. Any bytes are safe.
  static absl::StatusOr<Cursor> FromJson(absl::string_view state);
  // FailedPrecondition naming the field when this belongs to another dataset, pipeline or seed.
  absl::Status CheckSameSource(const Cursor& ours) const;
  // FailedPrecondition when it is of another world size, where each rank makes its own records.
  absl::Status CheckSameWorld(int64_t ours) const;

  // One line of JSON with a CRC32C over the line without it (keys sorted, no blanks), at most 1
  // KiB. Version 1 without skips, which every client reads; version 2 with them, which a client
  // that would not leave them out refuses.
  std::string ToJson() const;

  // Leaves out [first, end) of an epoch. InvalidArgument when that makes more than kMaxSkips.
  absl::Status Skip(SkippedRange range);
  // Forgets what lies behind `at`.
  void ForgetPassed();
  // From where to go on at `place`: behind every range that a batch beginning there would touch.
  EpochPosition AfterSkips(EpochPosition place) const;
};

}  // namespace feedwater
