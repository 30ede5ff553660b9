// A Huffman code made ready for decoding: one look at the next ten bits gives the code's length,
// how far the coefficient lies, and, where code and value bits fit into ten, the value itself.
// Built into memory that is reused from image to image.
#pragma once

#include <cstdint>

#include "server/codec/jpeg/frame.h"

namespace feedwater::server::jpeg {

inline constexpr int kLookBits = 10;
// Added to the place in the block at its end: no run of coefficients gets there.
inline constexpr int kEndOfBlock = 128;

struct HuffmanTable {
  // By the next ten bits. Bits 0-5: bits to drop. Bit 6: the value is in the entry. Bits 8-15: how
  // far to go (run + 1, 16 for sixteen zeroes, kEndOfBlock). Bits 16-31: the value, or the number
  // of value bits that follow. 0: the code has more than ten bits.
  static constexpr uint32_t kHasValue = 1 << 6;
  uint32_t look[1 << kLookBits];
  // For AC coefficients, by the next ten bits: one or two whole symbols with their values. Bits
  // 0-7: bits of all. Bits 8-15, 16-23: how far to go for the first and the second. Bits 24-31:
  // bits of the first. Bits 32-47, 48-63: their values. One alone stands twice, the second time no
  // way off. What has no value in ten bits has kPart set and is as in `look` (bits 0-5, 8-15,
  // 32-47), or 0.
  static constexpr uint64_t kPart = 1 << 7;
  uint64_t two[1 << kLookBits];
  // For skipping, by the next ten bits. Bits 0-3: bits of all whole symbols in them. Bits 4-9: how
  // far they go. Bit 15: the last one ends the block.
  static constexpr uint16_t kEnds = 1 << 15;
  uint16_t skip[1 << kLookBits];
  // Longer codes: the largest code of each length, and what to add to a code for its symbol's
  // place.
  int32_t max_code[18];
  int32_t symbol_at[17];
  uint8_t symbols[256];
};

// False where libjpeg would refuse the code, or a DC symbol is not one of 8-bit images.
bool BuildDcTable(const HuffmanCode& code, HuffmanTable* table);
bool BuildAcTable(const HuffmanCode& code, HuffmanTable* table);

}  // namespace feedwater::server::jpeg
