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
