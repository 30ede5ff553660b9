// The Huffman decoder of baseline scans: rows of MCUs to coefficients, one after the other. Blocks
// that nobody wants are passed over, which costs less than decoding them.
//
// Whatever is out of the ordinary (a code that does not exist, a run beyond the block, data that
// ends early or has a marker in it) makes it give up; libjpeg-turbo then has the word. Any bytes
// are safe. One object serves one thread, image after image; it allocates only while images grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/codec/jpeg/block_row.h"
#include "server/codec/jpeg/frame.h"
#include "server/codec/jpeg/huffman_table.h"

namespace feedwater::server::jpeg {

class EntropyDecoder {
 public:
  // `frame` and `encoded` stay until the last row. kNone, or why the scan is not covered.
  Uncovered Start(absl::Span<const uint8_t> encoded, const JpegFrame& frame);

  // Which blocks of a row are wanted: columns [first, end) of those component rows that have
  // memory.
  struct WantedRow {
    int first = 0, end = 0;  // columns; the blocks come side by side
    int16_t* coefficients =
        nullptr;  // of column `first`, with room for a block behind the last; null: none of the row
    BlockLists* lists = nullptr;  // cleared by the caller; may be null
  };
  // The next row of MCUs. `wanted[c][v]`: the v-th row of blocks of component c in it. False: give
  // up.
  bool DecodeMcuRow(const WantedRow (*wanted)[4]);
  bool SkipMcuRow();

 private:
  struct BitReader {
    const uint8_t* next = nullptr;
    uint64_t bits = 0;  // left aligned
    int count = 0;      // valid ones, at least

    void Refill();
    uint32_t Look() const { return static_cast<uint32_t>(bits >> (64 - kLookBits)); }
    void Drop(int n) {
      bits <<= n;
      count -= n;
    }
  };

  static bool DecodeDc(BitReader& reader, const HuffmanTable& table, int* difference);
  static int DecodeAc(BitReader& reader, const HuffmanTable& table, int16_t* block);
  static bool SkipAc(BitReader& reader, const HuffmanTable& table);
  static bool LongSymbol(BitReader& reader, const HuffmanTable& table, int* symbol);
  bool WithinData() const;

  const JpegFrame* frame_ = nullptr;
  HuffmanTable dc_[kMaxComponents], ac_[kMaxComponents];
  const HuffmanTable *dc_of_[kMaxComponents], *ac_of_[kMaxComponents];
  std::vector<uint8_t> scan_;  // without the stuffed zeroes, and zeroes behind it
  size_t scan_bytes_ = 0;
  BitReader reader_;
  int last_dc_[kMaxComponents] = {};
};

}  // namespace feedwater::server::jpeg
