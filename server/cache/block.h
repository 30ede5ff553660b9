// How one record is kept, in memory and on disk alike: a header of 64 bytes, the payload, zeroes up
// to the next multiple of 64. On disk a block proves itself: bytes that were cut, flipped, or
// written for another record or another version are not taken for a payload. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace feedwater::server {

inline constexpr size_t kBlockUnit = 64;
inline constexpr size_t kMaxBlockBytes = 64 << 20;

struct BlockHeader {
  uint32_t magic;    // kBlockMagic
  uint32_t version;  // kBlockVersion
  uint64_t record;
  uint64_t stamp;  // of the file that the record was read from; 0: not known
  uint64_t payload_bytes;
  uint64_t payload_hash;  // XXH3-64
  uint64_t reserved[2];   // zero
  uint64_t header_hash;   // XXH3-64 of everything before
};
static_assert(sizeof(BlockHeader) == kBlockUnit);

inline constexpr uint32_t kBlockMagic = 0x42435746;  // "FWCB"
inline constexpr uint32_t kBlockVersion = 1;

// Bytes of a block with such a payload: a multiple of kBlockUnit.
size_t BlockBytes(size_t payload_bytes);

// Makes `block` the block of a record. REQUIRES: BlockBytes(payload.size()) <= kMaxBlockBytes.
void WriteBlock(int64_t record, uint64_t stamp, absl::Span<const std::byte> payload,
                std::vector<std::byte>* block);

struct BlockView {
  uint64_t stamp = 0;
  absl::Span<const std::byte> payload;
};
// What a block from disk holds. DataLoss with the reason when it is not a whole block of that
// record.
absl::StatusOr<BlockView> ReadBlock(int64_t record, absl::Span<const std::byte> block);
// The same without looking at the hashes, for blocks that never left this process's memory.
BlockView TrustedBlock(const std::byte* block);

}  // namespace feedwater::server
