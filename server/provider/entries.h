// What may be asked for in one entry of a window, and what is said of one that failed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/graph/op_caller.h"

namespace feedwater::server {

inline constexpr int64_t kMostEntryBytes = 256 << 20;  // as of records that are read
inline constexpr int64_t kGuessedBytes = 64 << 10;     // of what has no fixed size
inline constexpr int kDeathsAllowed = 2;               // of processes, on one record or call

// What a window needs beside the numbers of a payload: heads, and what stands between.
inline constexpr int64_t kHeadsBytes = 64 << 10;
inline constexpr int64_t kMostRecordRoom = kMostEntryBytes + kHeadsBytes;
inline constexpr int64_t kMostCallRoom = kMostCallBytes + kHeadsBytes;

// Room for an entry that was too large for its window, and takes so many bytes. A program can err:
// once it gets more room than that needs. 0: it wants no more than it had, again, and would come
// back for ever.
int64_t RoomAfter(int64_t had_bytes, int64_t wants_bytes, bool* is_doubted);

// What a program says of a failure, made fit for messages.
std::string TextOf(absl::Span<const std::byte> bytes);
absl::Status TooLarge(uint64_t bytes);
// Of what RoomAfter gives none.
absl::Status NeverFits(int64_t had_bytes, int64_t wants_bytes);

}  // namespace feedwater::server
