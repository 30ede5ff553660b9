#include "server/codec/jpeg/huffman_table.h"

#include <algorithm>
#include <cstring>

namespace feedwater::server::jpeg {
namespace {

constexpr int kLooks = 1 << kLookBits;
constexpr int kMaxDcBits = 11;  // of 8-bit images

// The value that `size` bits stand for (ITU-T T.81, F.2.2.1, EXTEND).
int Extend(int bits, int size) {
  return size > 0 && bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

uint32_t Entry(int drop, bool has_value, int advance, int value) {
  return static_cast<uint32_t>(drop) | (has_value ? HuffmanTable::kHasValue : 0) |
         static_cast<uint32_t>(advance) << 8 |
         static_cast<uint32_t>(static_cast<uint16_t>(value)) << 16;
}

// Calls put(code, length, symbol) for each code in ascending order. False when the lengths are
// those of no prefix code.
template <typename Put>
bool ForEachCode(const HuffmanCode& huffman, HuffmanTable* table, Put put) {
  int code = 0, symbol = 0;
  for (int length = 1; length <= 16; ++length) {
    table->symbol_at[length] = symbol - code;
    const int count = huffman.counts[length - 1];
    for (int i = 0; i < count; ++i, ++symbol, ++code) put(code, length, huffman.symbols[symbol]);
    if (code >= 1 << length) return false;  // no code is all ones
    table->max_code[length] = count > 0 ? code - 1 : -1;
    code <<= 1;
  }
  table->max_code[17] = INT32_MAX;
  return true;
}

// Fills the entries of all ten-bit looks that begin with the code. `advance_of`, `size_of`: of the
// symbol.
void PutCode(int code, int length, int advance, int size, HuffmanTable* table) {
  if (length > kLookBits || code >= 1 << length) return;
  const int rest = kLookBits - length;
  for (int tail = 0; tail < 1 << rest; ++tail) {
    uint32_t& entry = table->look[(code << rest) | tail];
    if (size <= rest) {
      entry = Entry(length + size, true, advance, Extend(tail >> (rest - size), size));
    } else {
      entry = Entry(length, false, advance, size);
    }
  }
}

bool Prepare(const HuffmanCode& code, HuffmanTable* table) {
  if (code.symbol_count < 1 || code.symbol_count > 256) return false;
  std::memset(table->look, 0, sizeof(table->look));
  std::memset(table->symbols, 0, sizeof(table->symbols));
  std::memcpy(table->symbols, code.symbols, static_cast<size_t>(code.symbol_count));
  return true;
}

// One or two whole symbols at one look.
void BuildPairs(HuffmanTable* table) {
  for (int look = 0; look < kLooks; ++look) {
    const uint32_t first = table->look[look];
    const uint64_t bits = first & 63, advance = first >> 8 & 255, value = first >> 16;
    uint64_t& two = table->two[look];
    if ((first & HuffmanTable::kHasValue) == 0) {
      two = first == 0 ? 0 : bits | HuffmanTable::kPart | advance << 8 | value << 32;
      continue;
    }
    two = bits | advance << 8 | bits << 24 | value << 32 | value << 48;
    const uint32_t second = table->look[(look << bits) & (kLooks - 1)];
    const uint64_t both = bits + (second & 63);
    if ((second & HuffmanTable::kHasValue) == 0 || both > kLookBits || advance == kEndOfBlock)
      continue;
    two = both | advance << 8 | uint64_t{second >> 8 & 255} << 16 | bits << 24 | value << 32 |
          uint64_t{second >> 16} << 48;
  }
}

// Several whole symbols at one look, for blocks that nobody wants.
void BuildSkips(HuffmanTable* table) {
  for (int look = 0; look < kLooks; ++look) {
    int bits = 0, far = 0;
    bool ends = false;
    while (bits < kLookBits && !ends) {
      const uint32_t entry = table->look[(look << bits) & (kLooks - 1)];
      const int drop = static_cast<int>(entry & 63), advance = static_cast<int>(entry >> 8 & 255);
      if ((entry & HuffmanTable::kHasValue) == 0 || bits + drop > kLookBits) break;
      ends = advance == kEndOfBlock;
      if (!ends && far + advance > 62) break;
      bits += drop;
      if (!ends) far += advance;
    }
    table->skip[look] = static_cast<uint16_t>(bits | far << 4 | (ends ? HuffmanTable::kEnds : 0));
  }
}

}  // namespace

bool BuildDcTable(const HuffmanCode& code, HuffmanTable* table) {
  if (!Prepare(code, table)) return false;
  for (int i = 0; i < code.symbol_count; ++i) {
    if (code.symbols[i] > kMaxDcBits) return false;
  }
  return ForEachCode(code, table, [table](int bits, int length, int symbol) {
    PutCode(bits, length, 1, symbol, table);
  });
}

bool BuildAcTable(const HuffmanCode& code, HuffmanTable* table) {
  if (!Prepare(code, table)) return false;
  const bool is_code = ForEachCode(code, table, [table](int bits, int length, int symbol) {
    const int run = symbol >> 4, size = symbol & 15;
    PutCode(bits, length, size > 0 ? run + 1 : run == 15 ? 16 : kEndOfBlock, size, table);
  });
  if (!is_code) return false;
  BuildPairs(table);
  BuildSkips(table);
  return true;
}

}  // namespace feedwater::server::jpeg
