// The Huffman decoder of baseline scans: MCUs to coefficients. Blocks that nobody wants are passed
// over, which costs less than decoding them. Two rows of MCUs whose beginnings are known can be
// decoded at once: decoding one is a chain in which each code waits for the one before it, and
// the core has room for a second.
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
#include "server/codec/jpeg/seek_index.h"

namespace feedwater::server::jpeg {

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

// A place in a scan at which it is being decoded.
class ScanCursor {
 public:
  // Goes to `from`. Bytes from `end` of the scan on are not looked at. REQUIRES: `scan` stays.
  // False when there is no such place.
  bool Begin(absl::Span<const uint8_t> scan, const SeekPoint& from, size_t end);
  // The place as a point of a seek index. False when the DC values do not fit.
  bool Point(int components, SeekPoint* point) const;

 private:
  friend class EntropyDecoder;
  bool WithinData(const BitReader& reader) const;

  BitReader reader_;
  int last_dc_[kMaxComponents] = {};
  size_t begin_ = 0;            // of bytes_ in the scan
  std::vector<uint8_t> bytes_;  // without the stuffed zeroes, and zeroes behind it
  size_t byte_count_ = 0;
  std::vector<uint32_t> unstuffed_;  // in front of these of bytes_ a stuffed zero was left out
};

class EntropyDecoder {
 public:
  // Makes the tables ready. `frame` stays. kNone, or why the scan is not covered.
  Uncovered Start(const JpegFrame& frame);

  // Which blocks of a row are wanted: columns [first, end) of those component rows that have
  // memory.
  struct WantedRow {
    int first = 0, end = 0;  // columns; the blocks come side by side
    int16_t* coefficients =
        nullptr;  // of column `first`, with room for a block behind the last; null: none of the row
    BlockLists* lists = nullptr;  // cleared by the caller; may be null
  };
  using WantedMcuRow = WantedRow[kMaxComponents][4];  // [c][v]: the v-th row of blocks of c in it

  // MCUs [first, end) of a row of MCUs. False: give up.
  bool Decode(ScanCursor& cursor, int first, int end, const WantedMcuRow& wanted) const;
  // The same MCUs of two rows at once.
  bool DecodeBoth(ScanCursor& a, ScanCursor& b, int first, int end, const WantedMcuRow& wanted_a,
                  const WantedMcuRow& wanted_b);
  // So many MCUs that nobody wants.
  bool Skip(ScanCursor& cursor, int mcus) const;

 private:
  // One block of the MCUs that DecodeBoth goes through, in the scan's order.
  struct Step {
    uint8_t component, v;
    uint16_t column;
  };
  struct Lane;

  static bool DecodeDc(BitReader& reader, const HuffmanTable& table, int* difference);
  static bool AcStep(BitReader& reader, const HuffmanTable& table, int16_t* block, int* place);
  static int DecodeAc(BitReader& reader, const HuffmanTable& table, int16_t* block);
  static bool SkipAc(BitReader& reader, const HuffmanTable& table);
  static bool LongSymbol(BitReader& reader, const HuffmanTable& table, int* symbol);
  static void List(BlockLists* lists, int last, int index);
  void MakeSteps(int first, int end);

  const JpegFrame* frame_ = nullptr;
  HuffmanTable dc_[kMaxComponents], ac_[kMaxComponents];
  const HuffmanTable *dc_of_[kMaxComponents], *ac_of_[kMaxComponents];
  std::vector<Step> steps_;  // of MCUs [first_step_, end_step_)
  int first_step_ = 0, end_step_ = 0;
};

}  // namespace feedwater::server::jpeg
