// The inner loops of the coefficient store (coefficient_store.h has the layout): packing a row of
// blocks, and from packed blocks straight to samples. One source for every SIMD target; Highway
// chooses at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feedwater::server::jpeg {

inline constexpr int kCheckpointBlocks = 32;
inline constexpr size_t kCheckpointBytes = 4, kBlockHeaderBytes = 4;
// Of one block: an exception for all 63 coefficients, and eight groups of eight bytes.
inline constexpr size_t kMaxPayload = 3 + 2 * 63 + 64;
// What a reader may read behind a payload's end, and a packer may write.
inline constexpr size_t kPayloadPadding = 64;

// Where to read from: the first block of a checkpoint.
struct PackedBlocks {
  const uint8_t* headers = nullptr;
  const uint8_t* payload = nullptr;
  size_t payload_bytes = 0;  // at least; kPayloadPadding more may be read
  int dc = 0;                // of the block before
};

// Packs a row of `blocks` blocks (64 coefficients each, natural order) and returns the bytes of its
// payload. Room: kCheckpointBytes per checkpoint, kBlockHeaderBytes per block, kMaxPayload per
// block
// + kPayloadPadding. In pack_kernels.cc.
size_t PackRow(const int16_t* coefficients, size_t blocks, uint8_t* checkpoints, uint8_t* headers,
               uint8_t* payload);

// Samples of blocks `skip` .. `skip + count - 1`: as PixelKernels::transform_row, without its
// guards (which held when the blocks were packed). False, with any samples, where the headers speak
// of more payload than there is. In unpack_kernels.cc.
bool TransformPacked(const PackedBlocks& from, int skip, int count, const uint16_t* quant, int side,
                     uint8_t* out, size_t stride);

}  // namespace feedwater::server::jpeg
