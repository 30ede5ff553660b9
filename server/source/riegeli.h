// Riegeli/records files, as riegeli/doc/riegeli_records_file_format.md describes them: chunks of
// records one behind the other, with 24 bytes of every block of 64 KiB put between. What is read
// here are chunk headers and simple chunks, uncompressed or with zstd; transposed chunks, Brotli
// and Snappy are told apart and refused. Any bytes are safe. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/status.h"
#include "server/source/columns.h"
#include "server/source/file_window.h"

namespace feedwater::server {

inline constexpr uint64_t kRiegeliBlock = 64 << 10, kRiegeliBlockHeader = 24;
inline constexpr uint64_t kRiegeliChunkHeader = 40;

struct RiegeliChunk {
  enum class Type : char {
    kSignature = 's',
    kMetadata = 'm',
    kPadding = 'p',
    kSimple = 'r',
    kTransposed = 't',
  };
  Type type = Type::kSignature;
  uint64_t data_bytes = 0, data_hash = 0;
  uint64_t records = 0, decoded_bytes = 0;
};

// Where `bytes` of chunks end that begin at `at`, with the block headers between them.
// REQUIRES: both below 2^62.
uint64_t RiegeliEnd(uint64_t at, uint64_t bytes);
// Where the next chunk begins.
uint64_t RiegeliNextChunk(uint64_t at, const RiegeliChunk& chunk);

// Copies `length` bytes of chunks, without block headers. `file` holds what lies at `at` and
// behind; false when it ends before.
bool CopyRiegeli(absl::string_view file, uint64_t at, uint64_t length, char* to);

// The chunk that begins at `at`. DataLoss, "has no chunk header ...", when none does.
absl::StatusOr<RiegeliChunk> ParseRiegeliChunk(absl::string_view file, uint64_t at);
// The same from a file. `compression`: the first byte of its data, 0 without one.
absl::StatusOr<RiegeliChunk> ReadRiegeliChunk(FileWindow* window, uint64_t at, char* compression);

// Why the records of such a chunk cannot be read, with the cure; "" when they can.
std::string WhyUnreadableRiegeli(RiegeliChunk::Type type, char compression);

// Sets `column` to a record of the simple chunk at `at`, of which `file` holds all. Checks both
// hashes. `records`: how many the chunk should have.
absl::Status ReadRiegeliRecord(absl::string_view file, uint64_t at, uint64_t records,
                               uint64_t record, size_t column, ColumnValues* values);

// Gives all records of the simple chunk at `at`, which ReadRiegeliChunk has read, one behind the
// other: `begin` is told a record's length, and `append` its bytes, in pieces. Holds the records'
// sizes and a few MiB, however large the chunk is. Whether the chunk has its hash is known when all
// is told: DataLoss, "has a group ...", where it has not, or its parts do not fit together.
absl::Status UnpackRiegeliChunk(FileWindow* window, uint64_t at, const RiegeliChunk& chunk,
                                const std::function<absl::Status(uint64_t bytes)>& begin,
                                const std::function<absl::Status(absl::string_view)>& append);

}  // namespace feedwater::server
