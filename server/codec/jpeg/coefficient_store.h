// A JPEG without its Huffman codes: the quantised coefficients of one image in a form that SIMD
// unpacks, 1.33 times the JPEG's bytes, any block reachable without the ones before it. One image
// is one document, self-contained, versioned and checksummed, that may be kept in memory or in a
// file and moved between machines (all numbers little-endian):
//
//   u32 magic "FWCS", u32 version, u64 XXH3 of everything behind it, u64 bytes of the document,
//   u32 width, u32 height, u8 components, u8 h[3], u8 v[3] (sampling factors), u8 EXIF orientation
//   (1..8), per component 64 bytes: quantisation steps in natural order, per component and row of
//   blocks: u32 offset of the row from the document's start, the rows, in the order in which they
//   were packed, 64 zero bytes, so that vectors may be read whole.
//
//   row: per 32 blocks {u16 bytes of their payload, int16 DC of the block before, in the row},
//        per block u32 header, the payloads (packed_block.h). DC starts at 0 in every row.
//
// Only real blocks are kept, not those that fill up the last MCUs. Blocks beyond the guards
// (block_guard.h) are refused when packing, so that readers need not look.
//
// Reading is safe for any bytes: OpenStore checks the header and all offsets, PackedRow the
// checkpoints, the kernels every block's length. Whether the bytes are the ones written is what
// VerifyStore finds out, once, when a document comes from outside the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/jpeg/store_kernels.h"

namespace feedwater::server::jpeg {

inline constexpr uint32_t kStoreVersion = 2;

// The most that a document of a JPEG of so many bytes may take: its blocks' headers, and twice the
// file. A larger one is not worth its place. What encoders write stays below; a file made for it
// could take seven times its bytes.
int64_t MostStoreBytes(int64_t encoded_bytes, Size size);

// Packs one image after the other; keeps its buffers. Not thread-safe.
class StorePacker {
 public:
  // `quant`: per component 64 steps in natural order. False where the store does not cover such an
  // image: PlanesSupport fails, or a step is not within 1..255.
  bool Start(const FrameShape& shape, const uint16_t (*quant)[64], int orientation = 1,
             int64_t most_bytes = std::numeric_limits<uint32_t>::max());

  // The next row of blocks of component c, from top to bottom; components in any order, best as in
  // the file, so that what a crop needs lies together. shape.blocks_wide(c) blocks of 64
  // coefficients in natural order. False where the image is beyond the guards, or its document
  // beyond `most_bytes`: it goes to libjpeg-turbo.
  bool AddRow(int c, const int16_t* coefficients);

  // The document, once all rows are there; valid until the next Start. Empty where rows are missing
  // or the document would pass 4 GiB.
  absl::Span<const uint8_t> Finish();

 private:
  FrameShape shape_;
  int orientation_ = 1;
  size_t most_bytes_ = 0;
  uint16_t quant_[kMaxComponents][64];
  size_t offsets_at_[kMaxComponents] = {0, 0, 0};
  int rows_[kMaxComponents] = {0, 0, 0};
  std::vector<uint8_t> document_;
  size_t bytes_ = 0;
};

// A document that was looked at: offsets are within it. Does not own the bytes.
class StoreView {
 public:
  // DataLoss with the reason where the bytes are not a document of this version. O(rows).
  static absl::StatusOr<StoreView> Open(absl::Span<const uint8_t> document);

  const FrameShape& shape() const { return shape_; }
  const uint16_t* quant(int c) const { return quant_[c]; }

  // Where to read blocks from `column` on: the checkpoint's blocks before it are to be skipped.
  // False where the row's checkpoints speak of more than there is. REQUIRES: both are in the image.
  bool Seek(int c, int block_row, int column, PackedBlocks* from, int* skip) const;

  // The row's coefficients as they were packed, `count` blocks from `column` on: for tests and
  // tools. False as Seek.
  bool UnpackRow(int c, int block_row, int column, int count, int16_t* coefficients) const;

 private:
  absl::Span<const uint8_t> document_;
  FrameShape shape_;
  uint16_t quant_[kMaxComponents][64];
  size_t offsets_at_[kMaxComponents];
};

// What a document's header says. DataLoss where the bytes are not a document of this version.
struct StoreInfo {
  Size size;
  int orientation = 1;
};
bool IsStore(absl::Span<const uint8_t> bytes);  // by the first four bytes
absl::StatusOr<StoreInfo> ReadStoreInfo(absl::Span<const uint8_t> document);

// Whether the document's bytes are those that were packed. DataLoss otherwise.
absl::Status VerifyStore(absl::Span<const uint8_t> document);

}  // namespace feedwater::server::jpeg
