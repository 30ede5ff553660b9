#include "server/codec/jpeg/entropy_decoder.h"

#include <algorithm>
#include <cstring>

namespace feedwater::server::jpeg {
namespace {

// Zeroes behind the scan: an MCU of ten blocks cannot take more bits than these, so it is enough to
// look once an MCU whether the data has ended.
constexpr size_t kScanPadding = 10 * 64 * 4 + 64;

// The place in a block after a code that does not exist.
constexpr int kNoCode = 1024;

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

bool SameCode(const HuffmanCode& a, const HuffmanCode& b) { return a.counts == b.counts; }

}  // namespace

inline void BitReader::Refill() {
  bits |= LoadBigEndian(next) >> count;
  next += (63 - count) >> 3;
  count |= 56;
}

// Copies the bytes without the zeroes stuffed behind 0xFF, up to a marker or the end.
bool ScanCursor::Begin(absl::Span<const uint8_t> scan, const SeekPoint& from, size_t end) {
  end = std::min(end, scan.size());
  if (from.byte >= end && from.byte != 0) return false;
  begin_ = from.byte;
  if (bytes_.size() < end - begin_ + kScanPadding) bytes_.resize(end - begin_ + kScanPadding);
  unstuffed_.clear();
  const uint8_t* at = scan.data() + begin_;
  const uint8_t* const stop = scan.data() + end;
  uint8_t* out = bytes_.data();
  while (at < stop) {
    const void* found = std::memchr(at, 0xFF, static_cast<size_t>(stop - at));
    const uint8_t* filled = found == nullptr ? stop : static_cast<const uint8_t*>(found);
    std::memcpy(out, at, static_cast<size_t>(filled - at));
    out += filled - at;
    if (filled == stop) break;
    const uint8_t* const behind = filled + 1;
    if (behind == scan.data() + scan.size() || *behind != 0) break;  // a marker, or nothing
    *out++ = 0xFF;
    at = behind + 1;
    unstuffed_.push_back(static_cast<uint32_t>(out - bytes_.data()));
  }
  byte_count_ = static_cast<size_t>(out - bytes_.data());
  std::memset(out, 0, kScanPadding);
  reader_ = BitReader();
  reader_.next = bytes_.data();
  reader_.Refill();
  reader_.Drop(from.bit);
  std::copy_n(from.dc, kMaxComponents, last_dc_);
  return true;
}

bool ScanCursor::Point(int components, SeekPoint* point) const {
  const size_t bits =
      static_cast<size_t>(reader_.next - bytes_.data()) * 8 - static_cast<size_t>(reader_.count);
  const size_t byte = bits / 8;
  const auto left_out = std::upper_bound(unstuffed_.begin(), unstuffed_.end(), byte);
  point->byte =
      static_cast<uint32_t>(begin_ + byte) + static_cast<uint32_t>(left_out - unstuffed_.begin());
  point->bit = static_cast<uint8_t>(bits % 8);
  for (int c = 0; c < components; ++c) {
    point->dc[c] = static_cast<int16_t>(last_dc_[c]);
    if (point->dc[c] != last_dc_[c]) return false;
  }
  return true;
}

bool ScanCursor::WithinData(const BitReader& reader) const {
  const size_t bits =
      static_cast<size_t>(reader.next - bytes_.data()) * 8 - static_cast<size_t>(reader.count);
  return bits <= byte_count_ * 8;
}

Uncovered EntropyDecoder::Start(const JpegFrame& frame) {
  frame_ = &frame;
  first_step_ = end_step_ = 0;
  for (int c = 0; c < frame.shape.components; ++c) {
    dc_of_[c] = &dc_[c];
    ac_of_[c] = &ac_[c];
    for (int other = 0; other < c; ++other) {  // both chroma components usually share theirs
      if (SameCode(frame.dc[c], frame.dc[other])) dc_of_[c] = dc_of_[other];
      if (SameCode(frame.ac[c], frame.ac[other])) ac_of_[c] = ac_of_[other];
    }
    if (dc_of_[c] == &dc_[c] && !BuildDcTable(frame.dc[c], &dc_[c])) return Uncovered::kTables;
    if (ac_of_[c] == &ac_[c] && !BuildAcTable(frame.ac[c], &ac_[c])) return Uncovered::kTables;
  }
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

// The next symbols of the block's AC coefficients; it is zero before. `place` is that of the last
// coefficient in zigzag order. False once the block has ended: place is then 63, or the last
// coefficient's + kEndOfBlock; whatever else is between them, or kNoCode, is no block. A refill
// leaves at least 56 bits, enough for two short symbols, or for a long one with its value.
inline bool EntropyDecoder::AcStep(BitReader& reader, const HuffmanTable& table, int16_t* block,
                                   int* place) {
  int k = *place;
  reader.Refill();
  uint32_t entry = table.look[reader.Look()];
  if (__builtin_expect((entry & HuffmanTable::kHasValue) != 0, 1)) {
    reader.Drop(static_cast<int>(entry & 63));
    k += static_cast<int>(entry >> 8 & 255);
    block[kNaturalOrder[k]] = static_cast<int16_t>(entry >> 16);
    if (k >= 63) {
      *place = k;
      return false;
    }
    entry = table.look[reader.Look()];
    if (__builtin_expect((entry & HuffmanTable::kHasValue) != 0, 1)) {
      reader.Drop(static_cast<int>(entry & 63));
      k += static_cast<int>(entry >> 8 & 255);
      block[kNaturalOrder[k]] = static_cast<int16_t>(entry >> 16);
      *place = k;
      return k < 63;
    }
  }
  int size, advance;
  if (entry != 0) {
    reader.Drop(static_cast<int>(entry & 63));
    size = static_cast<int>(entry >> 16);
    advance = static_cast<int>(entry >> 8 & 255);
  } else {
    int symbol;
    if (!LongSymbol(reader, table, &symbol)) {
      *place = kNoCode;
      return false;
    }
    size = symbol & 15;
    advance = size > 0 ? (symbol >> 4) + 1 : symbol >> 4 == 15 ? 16 : kEndOfBlock;
  }
  k += advance;
  if (size > 0) {
    block[kNaturalOrder[k]] = static_cast<int16_t>(Extend(reader.bits, size));
    reader.Drop(size);
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
inline int EntropyDecoder::DecodeAc(BitReader& shared, const HuffmanTable& table, int16_t* block) {
  BitReader reader = shared;
  int place = 0;
  while (AcStep(reader, table, block, &place)) {
  }
  shared = reader;
  return LastPlace(place);
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

inline void EntropyDecoder::List(BlockLists* lists, int last, int index) {
  if (lists == nullptr) return;
  // The first ten coefficients in zigzag order are those of rows and columns 0..3 that lie above
  // the diagonal.
  const BlockKind kind = last == 0 ? kDcOnly : last <= 9 ? kQuarter : kFull;
  lists->Add(kind, static_cast<uint16_t>(index));
}

bool EntropyDecoder::Decode(ScanCursor& cursor, int first, int end,
                            const WantedMcuRow& wanted) const {
  const FrameShape& shape = frame_->shape;
  for (int mcu = first; mcu < end; ++mcu) {
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c]; ++v) {
        const WantedRow& row = wanted[c][v];
        for (int h = 0; h < shape.h[c]; ++h) {
          int difference;
          if (!DecodeDc(cursor.reader_, *dc_of_[c], &difference)) return false;
          cursor.last_dc_[c] += difference;
          const int column = mcu * shape.h[c] + h;
          if (row.coefficients == nullptr || column < row.first || column >= row.end) {
            if (!SkipAc(cursor.reader_, *ac_of_[c])) return false;
            continue;
          }
          const int index = column - row.first, dc = cursor.last_dc_[c];
          int16_t* block = row.coefficients + static_cast<size_t>(index) * kBlockSamples;
          std::memset(block, 0, kBlockSamples * sizeof(int16_t));
          const int last = DecodeAc(cursor.reader_, *ac_of_[c], block);
          if (last < 0 || dc != static_cast<int16_t>(dc)) return false;
          block[0] = static_cast<int16_t>(dc);
          List(row.lists, last, index);
        }
      }
    }
    if (!cursor.WithinData(cursor.reader_)) return false;
  }
  return true;
}

bool EntropyDecoder::Skip(ScanCursor& cursor, int mcus) const {
  static constexpr WantedMcuRow kNothing = {};
  return Decode(cursor, 0, mcus, kNothing);
}

// One of the two rows that DecodeBoth goes through: where it stands.
struct EntropyDecoder::Lane {
  BitReader reader;
  const HuffmanTable* table;
  int16_t* block;
  int place;
  const Step* step;  // of `block`
};

void EntropyDecoder::MakeSteps(int first, int end) {
  if (first == first_step_ && end == end_step_) return;
  first_step_ = first;
  end_step_ = end;
  steps_.clear();
  const FrameShape& shape = frame_->shape;
  for (int mcu = first; mcu < end; ++mcu) {
    for (int c = 0; c < shape.components; ++c) {
      for (int v = 0; v < shape.v[c]; ++v) {
        for (int h = 0; h < shape.h[c]; ++h) {
          steps_.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(v),
                            static_cast<uint16_t>(mcu * shape.h[c] + h)});
        }
      }
    }
  }
}

bool EntropyDecoder::DecodeBoth(ScanCursor& a, ScanCursor& b, int first, int end,
                                const WantedMcuRow& wanted_a, const WantedMcuRow& wanted_b) {
  MakeSteps(first, end);
  const Step* const stop = steps_.data() + steps_.size();

  // Goes to the lane's next wanted block, from `step` on. False at the end, or when the data is no
  // good: lane.step tells which.
  const auto enter = [&](Lane & lane, ScanCursor & cursor, const WantedMcuRow& wanted,
                         const Step* step) __attribute__((always_inline)) {
    for (; step < stop; ++step) {
      const int c = step->component;
      const WantedRow& row = wanted[c][step->v];
      lane.step = nullptr;
      int difference;
      if (!DecodeDc(lane.reader, *dc_of_[c], &difference)) return false;
      cursor.last_dc_[c] += difference;
      if (row.coefficients == nullptr || step->column < row.first || step->column >= row.end) {
        if (!SkipAc(lane.reader, *ac_of_[c]) || !cursor.WithinData(lane.reader)) return false;
        continue;
      }
      const int index = step->column - row.first, dc = cursor.last_dc_[c];
      if (dc != static_cast<int16_t>(dc)) return false;
      lane.step = step;
      lane.table = ac_of_[c];
      lane.place = 0;
      lane.block = row.coefficients + static_cast<size_t>(index) * kBlockSamples;
      std::memset(lane.block, 0, kBlockSamples * sizeof(int16_t));
      lane.block[0] = static_cast<int16_t>(dc);
      return true;
    }
    lane.step = stop;
    return false;
  };
  // Ends the lane's block and goes to the next one.
  const auto leave = [&](Lane & lane, ScanCursor & cursor, const WantedMcuRow& wanted)
      __attribute__((always_inline)) {
    const Step& step = *lane.step;
    const WantedRow& row = wanted[step.component][step.v];
    const int last = LastPlace(lane.place);
    const Step* const next = lane.step + 1;
    lane.step = nullptr;
    if (last < 0 || !cursor.WithinData(lane.reader)) return false;
    List(row.lists, last, step.column - row.first);
    return enter(lane, cursor, wanted, next);
  };
  const auto finish = [&](Lane& lane, ScanCursor& cursor, const WantedMcuRow& wanted) {
    do {
      while (AcStep(lane.reader, *lane.table, lane.block, &lane.place)) {
      }
    } while (leave(lane, cursor, wanted));
    return lane.step == stop;
  };

  Lane x{a.reader_, nullptr, nullptr, 0, nullptr}, y{b.reader_, nullptr, nullptr, 0, nullptr};
  bool goes_x = enter(x, a, wanted_a, steps_.data()), goes_y = enter(y, b, wanted_b, steps_.data());
  while (goes_x && goes_y) {
    if (!AcStep(x.reader, *x.table, x.block, &x.place)) goes_x = leave(x, a, wanted_a);
    if (!AcStep(y.reader, *y.table, y.block, &y.place)) goes_y = leave(y, b, wanted_b);
  }
  if (goes_x ? !finish(x, a, wanted_a) : x.step != stop) return false;
  if (goes_y ? !finish(y, b, wanted_b) : y.step != stop) return false;
  a.reader_ = x.reader;
  b.reader_ = y.reader;
  return a.WithinData(a.reader_) && b.WithinData(b.reader_);
}

}  // namespace feedwater::server::jpeg
