#include "server/codec/jpeg/entropy_decoder.h"

#include <cstring>

namespace feedwater::server::jpeg {
namespace {

// Zeroes behind the scan: an MCU of ten blocks cannot take more bits than these, so it is enough to
// look once an MCU whether the data has ended.
constexpr size_t kScanPadding = 10 * 64 * 4 + 64;

// `count` bits that stand for a number (EXTEND of ITU-T T.81).
inline int Extend(uint64_t bits, int size) {
  const int value = static_cast<int>(bits >> (64 - size));
  return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

inline uint64_t LoadBigEndian(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return __builtin_bswap64(word);
}

// Copies the scan's bytes without the zeroes stuffed behind 0xFF, up to a marker or the end.
// Returns how many.
size_t Unstuff(absl::Span<const uint8_t> from, uint8_t* to) {
  const uint8_t* at = from.data();
  const uint8_t* const end = at + from.size();
  uint8_t* out = to;
  while (at < end) {
    const void* found = std::memchr(at, 0xFF, static_cast<size_t>(end - at));
    const uint8_t* stop = found == nullptr ? end : static_cast<const uint8_t*>(found);
    std::memcpy(out, at, static_cast<size_t>(stop - at));
    out += stop - at;
    if (stop == end || end - stop < 2 || stop[1] != 0) break;  // a marker, or nothing behind it
    *out++ = 0xFF;
    at = stop + 2;
  }
  return static_cast<size_t>(out - to);
}

bool SameCode(const HuffmanCode& a, const HuffmanCode& b) { return a.counts == b.counts; }

}  // namespace

inline void EntropyDecoder::BitReader::Refill() {
  bits |= LoadBigEndian(next) >> count;
  next += (63 - count) >> 3;
  count |= 56;
}

Uncovered EntropyDecoder::Start(absl::Span<const uint8_t> encoded, const JpegFrame& frame) {
  frame_ = &frame;
  for (int c = 0; c < frame.shape.components; ++c) {
    dc_of_[c] = &dc_[c];
    ac_of_[c] = &ac_[c];
    for (int other = 0; other < c; ++other) {  // both chroma components usually share theirs
      if (SameCode(frame.dc[c], frame.dc[other])) dc_of_[c] = dc_of_[other];
      if (SameCode(frame.ac[c], frame.ac[other])) ac_of_[c] = ac_of_[other];
    }
    if (dc_of_[c] == &dc_[c] && !BuildDcTable(frame.dc[c], &dc_[c])) return Uncovered::kTables;
    if (ac_of_[c] == &ac_[c] && !BuildAcTable(frame.ac[c], &ac_[c])) return Uncovered::kTables;
    last_dc_[c] = 0;
  }
  const absl::Span<const uint8_t> scan = encoded.subspan(frame.scan);
  if (scan_.size() < scan.size() + kScanPadding) scan_.resize(scan.size() + kScanPadding);
  scan_bytes_ = Unstuff(scan, scan_.data());
  std::memset(scan_.data() + scan_bytes_, 0, kScanPadding);
  reader_ = BitReader();
  reader_.next = scan_.data();
  return Uncovered::kNone;
}

// A code of more than ten bits, bit by bit.
bool EntropyDecoder::LongSymbol(BitReader& reader, const HuffmanTable& table, int* symbol) {
  for (int length = kLookBits + 1; length <= 16; ++length) {
    const int code = static_cast<int>(reader.bits >> (64 - length));
    if (code > table.max_code[length]) continue;
    const int at = code + table.symbol_at[length];
    if (at < 0 || at > 255) return false;
    *symbol = table.symbols[at];
    reader.Drop(length);
    return true;
  }
  return false;
}

inline bool EntropyDecoder::DecodeDc(BitReader& reader, const HuffmanTable& table,
                                     int* difference) {
  reader.Refill();
  const uint32_t entry = table.look[reader.Look()];
  if (__builtin_expect((entry & HuffmanTable::kHasValue) != 0, 1)) {
    reader.Drop(static_cast<int>(entry & 63));
    *difference = static_cast<int16_t>(entry >> 16);
    return true;
  }
  int size = static_cast<int>(entry >> 16);
  if (entry != 0) {
    reader.Drop(static_cast<int>(entry & 63));
  } else if (!LongSymbol(reader, table, &size)) {
    return false;
  }
  *difference = 0;
  if (size > 0) {
    *difference = Extend(reader.bits, size);
    reader.Drop(size);
  }
  return true;
}

// The block's AC coefficients; it is zero before. Returns the place of the last one in zigzag
// order, or -1. A refill leaves at least 56 bits, enough for two short symbols, or for a long one
// with its value.
inline int EntropyDecoder::DecodeAc(BitReader& shared, const HuffmanTable& table, int16_t* block) {
  BitReader reader = shared;
  int k = 0;
  while (k < 63) {
    reader.Refill();
    uint32_t entry = table.look[reader.Look()];
    if (__builtin_expect((entry & HuffmanTable::kHasValue) != 0, 1)) {
      reader.Drop(static_cast<int>(entry & 63));
      k += static_cast<int>(entry >> 8 & 255);
      block[kNaturalOrder[k]] = static_cast<int16_t>(entry >> 16);
      if (k >= 63) break;
      entry = table.look[reader.Look()];
      if (__builtin_expect((entry & HuffmanTable::kHasValue) != 0, 1)) {
        reader.Drop(static_cast<int>(entry & 63));
        k += static_cast<int>(entry >> 8 & 255);
        block[kNaturalOrder[k]] = static_cast<int16_t>(entry >> 16);
        continue;
      }
    }
    int size, advance;
    if (entry != 0) {
      reader.Drop(static_cast<int>(entry & 63));
      size = static_cast<int>(entry >> 16);
      advance = static_cast<int>(entry >> 8 & 255);
    } else {
      int symbol;
      if (!LongSymbol(reader, table, &symbol)) return -1;
      size = symbol & 15;
      advance = size > 0 ? (symbol >> 4) + 1 : symbol >> 4 == 15 ? 16 : kEndOfBlock;
    }
    k += advance;
    if (size > 0) {
      block[kNaturalOrder[k]] = static_cast<int16_t>(Extend(reader.bits, size));
      reader.Drop(size);
    }
  }
  shared = reader;
  if (k == 63) return 63;
  return k >= kEndOfBlock ? k - kEndOfBlock : -1;  // else a run that led beyond the block
}

inline bool EntropyDecoder::SkipAc(BitReader& shared, const HuffmanTable& table) {
  BitReader reader = shared;
  int k = 0;
  while (k < 63) {
    reader.Refill();
    for (int look = 0; look < 2; ++look) {
      const uint16_t skip = table.skip[reader.Look()];
      const int bits = skip & 15, far = skip >> 4 & 63;
      if (__builtin_expect(bits > 0 && k + far <= 62, 1)) {
        reader.Drop(bits);
        k += far;
        if ((skip & HuffmanTable::kEnds) != 0) {
          shared = reader;
          return true;
        }
        continue;
      }
      // One symbol by itself: it is long, or may be the last.
      const uint32_t entry = table.look[reader.Look()];
      if (entry != 0) {
        reader.Drop(static_cast<int>(entry & 63));
        k += static_cast<int>(entry >> 8 & 255);
        if ((entry & HuffmanTable::kHasValue) == 0) reader.Drop(static_cast<int>(entry >> 16));
      } else {
        int symbol;
        if (!LongSymbol(reader, table, &symbol)) return false;
        const int size = symbol & 15;
        reader.Drop(size);
        k += size > 0 ? (symbol >> 4) + 1 : symbol >> 4 == 15 ? 16 : kEndOfBlock;
      }
      break;
    }
  }
  shared = reader;
  return k == 63 || k >= kEndOfBlock;
}

bool EntropyDecoder::WithinData() const {
  const size_t bits =
      static_cast<size_t>(reader_.next - scan_.data()) * 8 - static_cast<size_t>(reader_.count);
  return bits <= scan_bytes_ * 8;
}

bool EntropyDecoder::DecodeMcuRow(const WantedRow (*wanted)[4]) {
  const FrameShape& shape = frame_->shape;
  const int mcus = frame_->mcus_wide();
  for (int mcu = 0; mcu < mcus; ++mcu) {
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c]; ++v) {
        const WantedRow& row = wanted[c][v];
        for (int h = 0; h < shape.h[c]; ++h) {
          int difference;
          if (!DecodeDc(reader_, *dc_of_[c], &difference)) return false;
          last_dc_[c] += difference;
          const int column = mcu * shape.h[c] + h;
          if (row.coefficients == nullptr || column < row.first || column >= row.end) {
            if (!SkipAc(reader_, *ac_of_[c])) return false;
            continue;
          }
          const int index = column - row.first;
          int16_t* block = row.coefficients + static_cast<size_t>(index) * kBlockSamples;
          std::memset(block, 0, kBlockSamples * sizeof(int16_t));
          const int last = DecodeAc(reader_, *ac_of_[c], block);
          if (last < 0 || last_dc_[c] != static_cast<int16_t>(last_dc_[c])) return false;
          block[0] = static_cast<int16_t>(last_dc_[c]);
          if (row.lists != nullptr) {
            // The first ten coefficients in zigzag order are those of rows and columns 0..3 that
            // lie above the diagonal.
            row.lists->Add(last == 0   ? kDcOnly
                           : last <= 9 ? kQuarter
                                       : kFull,
                           static_cast<uint16_t>(index));
          }
        }
      }
    }
    if (!WithinData()) return false;
  }
  return true;
}

bool EntropyDecoder::SkipMcuRow() {
  static constexpr WantedRow kNothing[kMaxComponents][4] = {};
  return DecodeMcuRow(kNothing);
}

}  // namespace feedwater::server::jpeg
