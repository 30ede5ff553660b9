#include "server/cache/block.h"

#include <xxhash.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace feedwater::server {
namespace {

uint64_t HeaderHash(const BlockHeader& header) {
  return XXH3_64bits(&header, offsetof(BlockHeader, header_hash));
}

}  // namespace

size_t BlockBytes(size_t payload_bytes) {
  return (sizeof(BlockHeader) + payload_bytes + kBlockUnit - 1) / kBlockUnit * kBlockUnit;
}

void WriteBlock(int64_t record, uint64_t stamp, absl::Span<const std::byte> payload,
                std::vector<std::byte>* block) {
  BlockHeader header = {};
  header.magic = kBlockMagic;
  header.version = kBlockVersion;
  header.record = static_cast<uint64_t>(record);
  header.stamp = stamp;
  header.payload_bytes = payload.size();
  header.payload_hash = XXH3_64bits(payload.data(), payload.size());
  header.header_hash = HeaderHash(header);
  const size_t used = sizeof(header) + payload.size();
  block->resize(BlockBytes(payload.size()));
  std::memcpy(block->data(), &header, sizeof(header));
  if (!payload.empty()) std::memcpy(block->data() + sizeof(header), payload.data(), payload.size());
  std::memset(block->data() + used, 0, block->size() - used);
}

absl::StatusOr<BlockView> ReadBlock(int64_t record, absl::Span<const std::byte> block) {
  BlockHeader header;
  if (block.size() < sizeof(header)) return absl::DataLossError("shorter than a block's header");
  std::memcpy(&header, block.data(), sizeof(header));
  if (header.magic != kBlockMagic || header.header_hash != HeaderHash(header)) {
    return absl::DataLossError("not a block's header");
  }
  if (header.version != kBlockVersion) {
    return absl::DataLossError(
        absl::StrCat("a block of version ", header.version, ", not ", kBlockVersion));
  }
  if (header.record != static_cast<uint64_t>(record)) {
    return absl::DataLossError(absl::StrCat("the block of record ", header.record));
  }
  if (header.payload_bytes > block.size() - sizeof(header)) {
    return absl::DataLossError("a block that was cut");
  }
  BlockView view = TrustedBlock(block.data());
  if (XXH3_64bits(view.payload.data(), view.payload.size()) != header.payload_hash) {
    return absl::DataLossError("a block with a wrong checksum");
  }
  return view;
}

BlockView TrustedBlock(const std::byte* block) {
  BlockHeader header;
  std::memcpy(&header, block, sizeof(header));
  return {header.stamp, absl::MakeConstSpan(block + sizeof(header), header.payload_bytes)};
}

}  // namespace feedwater::server
