// What may be asked for in one entry of a window, and what is said of one that failed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace feedwater::server {

inline constexpr int64_t kMostEntryBytes = 256 << 20;  // as of records that are read
inline constexpr int64_t kGuessedBytes = 64 << 10;     // of what has no fixed size
inline constexpr int kDeathsAllowed = 2;               // of processes, on one record or call

// What a program says of a failure, made fit for messages.
std::string TextOf(absl::Span<const std::byte> bytes);
absl::Status TooLarge(uint64_t bytes);

}  // namespace feedwater::server
