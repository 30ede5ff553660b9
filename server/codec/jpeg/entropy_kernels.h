// The Huffman decoder's inner loops, once in source and compiled for every SIMD target by Highway:
// they are scalar, but targets bring better shifts, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/codec/jpeg/block_row.h"
#include "server/codec/jpeg/huffman_table.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/jpeg/scan_cursor.h"

namespace feedwater::server::jpeg {

struct EntropyCodes {
  FrameShape shape;
  const HuffmanTable *dc[kMaxComponents], *ac[kMaxComponents];
};

// Which blocks of a row are wanted: columns [first, end) of those component rows that have memory.
struct WantedRow {
  int first = 0, end = 0;  // columns; the blocks come side by side
  int16_t* coefficients =
      nullptr;  // of column `first`, with room for a block behind the last; null: none of the row
  BlockLists* lists = nullptr;  // cleared by the caller; may be null
  bool dc_alone = false;        // nothing but the blocks' DC is wanted; the rest may be anything
};
using WantedMcuRow = WantedRow[kMaxComponents][4];  // [c][v]: the v-th row of blocks of c in it

// One block of those that decode_both goes through, in the scan's order.
struct BlockStep {
  static constexpr uint16_t kNoColumn = 0xFFFF;  // that anybody could want
  uint8_t component, v;
  uint16_t column;
};

// One of the two rows of decode_both.
struct EntropyLane {
  ScanCursor* cursor;
  const BlockStep* from;  // its steps are [from, end)
  const WantedMcuRow* wanted;
};

struct EntropyKernels {
  // MCUs [first, end) of a row of MCUs. Blocks that nobody wants are passed over. False: the data
  // is no good.
  bool (*decode)(const EntropyCodes& codes, ScanCursor& cursor, int first, int end,
                 const WantedMcuRow& wanted);
  // Two rows at once. `end`: of both lanes' steps.
  bool (*decode_both)(const EntropyCodes& codes, const EntropyLane& a, const EntropyLane& b,
                      const BlockStep* end);
};

// The table for this CPU.
const EntropyKernels& ActiveEntropyKernels();

}  // namespace feedwater::server::jpeg
