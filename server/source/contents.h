// What a dataset's digest says about contents: every byte of a small dataset, pieces spread evenly
// over a large one. A copy with other file times has the same digest; files that were exchanged or
// rewritten have another one, for certain in a small dataset, and in a large one when a piece that
// was looked at is among what changed. The digest is what a cursor is held against; what samples
// are made of does not depend on it.
#pragma once

#include <string>
#include <vector>

#include "server/source/dataset.h"
#include "server/source/format.h"

namespace feedwater::server {

inline constexpr int64_t kWholeBytes = 256 << 20;  // a dataset of no more is read whole,
inline constexpr int64_t kWholeFiles = 2048;       // when it has no more files either
inline constexpr int64_t kPieces = 1024, kPieceBytes = 4096;

// Whether the digest is of every byte.
bool IsReadWhole(const Dataset& dataset);

struct Contents {
  std::string digest;              // 32 hex digits
  std::vector<Stamp> stamps;       // of the files that were looked at
  int64_t unsettled_until_ns = 0;  // the last of them (UnsettledUntilNs)
};

// A file that is missing or may not be read counts as such: its records are bad when their turn
// comes. Other errors of storage are returned.
absl::StatusOr<Contents> ReadContents(const Dataset& dataset);

}  // namespace feedwater::server
