#include "server/codec/jpeg/entropy_kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/codec/jpeg/entropy_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "server/codec/jpeg/frame.h"  // kNaturalOrder

HWY_BEFORE_NAMESPACE();
namespace feedwater::server::jpeg {
namespace HWY_NAMESPACE {

// The place in a block after a code that does not exist.
constexpr int kNoCode = 1024;

constexpr int kLooksARefill = 3;

// `count` bits that stand for a number (EXTEND of ITU-T T.81).
HWY_INLINE int Extend(uint64_t bits, int size) {
  const int value = static_cast<int>(bits >> (64 - size));
  return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

HWY_INLINE void Refill(BitReader& reader) {
  uint64_t word;
  std::memcpy(&word, reader.next, sizeof(word));
  reader.bits |= __builtin_bswap64(word) >> reader.count;
  reader.next += (63 - reader.count) >> 3;
  reader.count |= 56;
}

HWY_INLINE void Drop(BitReader& reader, int bits) {
  reader.bits <<= bits;
  reader.count -= bits;
}

HWY_INLINE bool WithinData(const ScanCursor& cursor, const BitReader& reader) {
  const size_t bits = static_cast<size_t>(reader.next - cursor.bytes.data()) * 8 -
                      static_cast<size_t>(reader.count);
  return bits <= cursor.byte_count * 8;
}

// A code of more than ten bits, bit by bit: its length << 8 | symbol, or -1. Takes the bits by
// value: a reader whose address is taken would live in memory.
HWY_NOINLINE int LongSymbol(uint64_t bits, const HuffmanTable& table) {
  for (int length = kLookBits + 1; length <= 16; ++length) {
    const int code = static_cast<int>(bits >> (64 - length));
    if (code > table.max_code[length]) continue;
    const int at = code + table.symbol_at[length];
    return at < 0 || at > 255 ? -1 : length << 8 | table.symbols[at];
  }
  return -1;
}

HWY_INLINE bool DecodeDc(BitReader& reader, const HuffmanTable& table, int* difference) {
  Refill(reader);
  const uint32_t entry = table.look[reader.Look()];
  if (__builtin_expect((entry & HuffmanTable::kHasValue) != 0, 1)) {
    Drop(reader, static_cast<int>(entry & 63));
    *difference = static_cast<int16_t>(entry >> 16);
    return true;
  }
  int size = static_cast<int>(entry >> 16);
  if (entry != 0) {
    Drop(reader, static_cast<int>(entry & 63));
  } else {
    const int symbol = LongSymbol(reader.bits, table);
    if (symbol < 0) return false;
    Drop(reader, symbol >> 8);
    size = symbol & 255;
  }
  *difference = 0;
  if (size > 0) {
    *difference = Extend(reader.bits, size);
    Drop(reader, size);
  }
  return true;
}

// The next symbols of the block's AC coefficients; it is zero before. `place` is that of the last
// coefficient in zigzag order. False once the block has ended: place is then 63, or the last
// coefficient's + kEndOfBlock; whatever else is between them, or kNoCode, is no block. A refill
// leaves at least 56 bits, enough for two looks of ten and a long symbol with its value.
HWY_INLINE bool AcStep(BitReader& reader, const HuffmanTable& table, int16_t* block, int* place) {
  int k = *place;
  Refill(reader);
  uint64_t entry = table.two[reader.Look()];
  for (int look = 0; look < kLooksARefill; ++look) {
    if (HWY_UNLIKELY((entry & 0xFF) - 1 >= HuffmanTable::kPart - 1)) break;
    k += static_cast<int>(entry >> 8 & 255);
    block[kNaturalOrder[k]] = static_cast<int16_t>(entry >> 32);
    if (k >= 63) {  // the block has ended, and what comes second belongs to the next one
      Drop(reader, static_cast<int>(entry >> 24 & 255));
      *place = k;
      return false;
    }
    k += static_cast<int>(entry >> 16 & 255);
    block[kNaturalOrder[k]] = static_cast<int16_t>(entry >> 48);
    Drop(reader, static_cast<int>(entry & 255));
    if (k >= 63 || look == kLooksARefill - 1) {
      *place = k;
      return k < 63;
    }
    entry = table.two[reader.Look()];
  }
  int size, advance;
  if (entry != 0) {
    Drop(reader, static_cast<int>(entry & 63));
    size = static_cast<int>(entry >> 32);
    advance = static_cast<int>(entry >> 8 & 255);
  } else {
    const int symbol = LongSymbol(reader.bits, table);
    if (symbol < 0) {
      *place = kNoCode;
      return false;
    }
    Drop(reader, symbol >> 8);
    const int run = symbol >> 4 & 15;
    size = symbol & 15;
    advance = size > 0 ? run + 1 : run == 15 ? 16 : kEndOfBlock;
  }
  k += advance;
  if (size > 0) {
    block[kNaturalOrder[k]] = static_cast<int16_t>(Extend(reader.bits, size));
    Drop(reader, size);
  }
  *place = k;
  return k < 63;
}

// The last coefficient's place in zigzag order, where AcStep ended; -1: no block.
inline int LastPlace(int place) {
  if (place == 63) return 63;
  return place >= kEndOfBlock && place < kNoCode ? place - kEndOfBlock : -1;
}

// All AC coefficients of the block; it is zero before. The last one's place, or -1.
HWY_INLINE int DecodeAc(BitReader& reader, const HuffmanTable& table, int16_t* block) {
  int place = 0;
  while (AcStep(reader, table, block, &place)) {
  }
  return LastPlace(place);
}

HWY_INLINE bool SkipAc(BitReader& reader, const HuffmanTable& table) {
  int k = 0;
  while (k < 63) {
    Refill(reader);
    for (int look = 0; look < 2; ++look) {
      const uint16_t skip = table.skip[reader.Look()];
      const int bits = skip & 15, far = skip >> 4 & 63;
      if (__builtin_expect(bits > 0 && k + far <= 62, 1)) {
        Drop(reader, bits);
        k += far;
        if ((skip & HuffmanTable::kEnds) != 0) {
          return true;
        }
        continue;
      }
      // One symbol by itself: it is long, or may be the last.
      const uint32_t entry = table.look[reader.Look()];
      if (entry != 0) {
        Drop(reader, static_cast<int>(entry & 63));
        k += static_cast<int>(entry >> 8 & 255);
        if ((entry & HuffmanTable::kHasValue) == 0) Drop(reader, static_cast<int>(entry >> 16));
      } else {
        const int symbol = LongSymbol(reader.bits, table);
        if (symbol < 0) return false;
        const int size = symbol & 15, run = symbol >> 4 & 15;
        Drop(reader, symbol >> 8);
        Drop(reader, size);
        k += size > 0 ? run + 1 : run == 15 ? 16 : kEndOfBlock;
      }
      break;
    }
  }
  return k == 63 || k >= kEndOfBlock;
}

HWY_INLINE void List(BlockLists* lists, int last, int index) {
  if (lists == nullptr) return;
  // The first ten coefficients in zigzag order are those of rows and columns 0..3 that lie above
  // the diagonal.
  const BlockKind kind = last == 0 ? kDcOnly : last <= 9 ? kQuarter : kFull;
  lists->Add(kind, static_cast<uint16_t>(index));
}

bool Decode(const EntropyCodes& codes, ScanCursor& cursor, int first, int end,
            const WantedMcuRow& wanted) {
  const FrameShape& shape = codes.shape;
  BitReader reader = cursor.reader;
  for (int mcu = first; mcu < end; ++mcu) {
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c]; ++v) {
        const WantedRow& row = wanted[c][v];
        for (int h = 0; h < shape.h[c]; ++h) {
          int difference;
          if (!DecodeDc(reader, *codes.dc[c], &difference)) return false;
          cursor.last_dc[c] += difference;
          const int column = mcu * shape.h[c] + h;
          if (row.coefficients == nullptr || column < row.first || column >= row.end) {
            if (!SkipAc(reader, *codes.ac[c])) return false;
            continue;
          }
          const int index = column - row.first;
          const int64_t dc = cursor.last_dc[c];
          int16_t* block = row.coefficients + static_cast<size_t>(index) * kBlockSamples;
          int last = 0;
          if (row.dc_alone) {
            if (!SkipAc(reader, *codes.ac[c])) return false;
          } else {
            std::memset(block, 0, kBlockSamples * sizeof(int16_t));
            last = DecodeAc(reader, *codes.ac[c], block);
          }
          if (last < 0 || dc != static_cast<int16_t>(dc)) return false;
          block[0] = static_cast<int16_t>(dc);
          List(row.lists, last, index);
        }
      }
    }
    if (!WithinData(cursor, reader)) return false;
  }
  cursor.reader = reader;
  return true;
}

// Where one of the two rows of DecodeBoth stands.
struct Lane {
  BitReader reader;
  const HuffmanTable* table;
  int16_t* block;
  int place;
  const BlockStep* step;  // of `block`; null: the data is no good
};

bool DecodeBoth(const EntropyCodes& codes, const EntropyLane& a, const EntropyLane& b,
                const BlockStep* end) {
  // A block that nobody wants is decoded all the same: two at once are cheaper than one skipped.
  int16_t unwanted[2][kBlockSamples + 1];
  // Goes to the block of `step`. False at the end, or when the data is no good.
  const auto enter = [&](Lane& lane, const EntropyLane& of, const BlockStep* step,
                         int16_t* nowhere) HWY_ATTR {
    lane.step = step;
    if (step == end) return false;
    const int c = step->component;
    int difference;
    if (HWY_UNLIKELY(!DecodeDc(lane.reader, *codes.dc[c], &difference))) {
      lane.step = nullptr;
      return false;
    }
    const int64_t dc = of.cursor->last_dc[c] += difference;
    lane.table = codes.ac[c];
    lane.place = 0;
    const WantedRow& row = (*of.wanted)[c][step->v];
    if (row.coefficients == nullptr || step->column < row.first || step->column >= row.end) {
      lane.block = nowhere;
      return true;
    }
    if (HWY_UNLIKELY(dc != static_cast<int16_t>(dc))) {
      lane.step = nullptr;
      return false;
    }
    lane.block = row.coefficients + static_cast<size_t>(step->column - row.first) * kBlockSamples;
    std::memset(lane.block, 0, kBlockSamples * sizeof(int16_t));
    lane.block[0] = static_cast<int16_t>(dc);
    return true;
  };
  // Ends the lane's block and goes to the next one.
  const auto leave = [&](Lane& lane, const EntropyLane& of, int16_t* nowhere) HWY_ATTR {
    const BlockStep& step = *lane.step;
    const int last = LastPlace(lane.place);
    if (HWY_UNLIKELY(last < 0 || !WithinData(*of.cursor, lane.reader))) {
      lane.step = nullptr;
      return false;
    }
    if (lane.block != nowhere) {
      const WantedRow& row = (*of.wanted)[step.component][step.v];
      List(row.lists, last, step.column - row.first);
    }
    return enter(lane, of, &step + 1, nowhere);
  };

  Lane x{a.cursor->reader, nullptr, nullptr, 0, nullptr};
  Lane y{b.cursor->reader, nullptr, nullptr, 0, nullptr};
  bool goes_x = enter(x, a, a.from, unwanted[0]), goes_y = enter(y, b, b.from, unwanted[1]);
  while (goes_x && goes_y) {
    if (!AcStep(x.reader, *x.table, x.block, &x.place)) goes_x = leave(x, a, unwanted[0]);
    if (!AcStep(y.reader, *y.table, y.block, &y.place)) goes_y = leave(y, b, unwanted[1]);
  }
  while (goes_x) {
    if (!AcStep(x.reader, *x.table, x.block, &x.place)) goes_x = leave(x, a, unwanted[0]);
  }
  while (goes_y) {
    if (!AcStep(y.reader, *y.table, y.block, &y.place)) goes_y = leave(y, b, unwanted[1]);
  }
  a.cursor->reader = x.reader;
  b.cursor->reader = y.reader;
  return x.step == end && y.step == end;
}

const EntropyKernels* EntropyKernelTable() {
  static const EntropyKernels kTable = {Decode, DecodeBoth};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace feedwater::server::jpeg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace feedwater::server::jpeg {

HWY_EXPORT(EntropyKernelTable);

const EntropyKernels& ActiveEntropyKernels() { return *HWY_DYNAMIC_DISPATCH(EntropyKernelTable)(); }

}  // namespace feedwater::server::jpeg
#endif
