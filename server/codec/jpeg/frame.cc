#include "server/codec/jpeg/frame.h"

#include <cstring>

namespace feedwater::server::jpeg {
namespace {

constexpr int kMaxSide = 65500;      // JPEG_MAX_DIMENSION
constexpr int kMaxBlocksInMcu = 10;  // D_MAX_BLOCKS_IN_MCU
constexpr int kTables = 4;

enum Marker : uint8_t {
  kSof0 = 0xC0,
  kSof1 = 0xC1,
  kSof2 = 0xC2,
  kDht = 0xC4,
  kJpg = 0xC8,
  kSof9 = 0xC9,
  kDac = 0xCC,
  kSof15 = 0xCF,
  kSoi = 0xD8,
  kSos = 0xDA,
  kDqt = 0xDB,
  kDri = 0xDD,
  kApp0 = 0xE0,
  kApp14 = 0xEE,
  kApp15 = 0xEF,
  kCom = 0xFE,
};

// The bytes of one segment, taken from the front.
class Segment {
 public:
  explicit Segment(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}
  bool Has(size_t count) const { return bytes_.size() >= count; }
  size_t size() const { return bytes_.size(); }
  uint8_t Byte() { return *Take(1); }  // REQUIRES: Has
  int Word() {
    const uint8_t* two = Take(2);
    return two[0] << 8 | two[1];
  }
  const uint8_t* Take(size_t count) {
    const uint8_t* first = bytes_.data();
    bytes_.remove_prefix(count);
    return first;
  }

 private:
  absl::Span<const uint8_t> bytes_;
};

class FrameReader {
 public:
  explicit FrameReader(JpegFrame* frame) : frame_(*frame) {}

  Uncovered Read(absl::Span<const uint8_t> encoded) {
    if (encoded.size() < 4 || encoded[0] != 0xFF || encoded[1] != kSoi) return Uncovered::kDamaged;
    size_t at = 2;
    for (;;) {
      if (at >= encoded.size() || encoded[at] != 0xFF) return Uncovered::kDamaged;
      while (at < encoded.size() && encoded[at] == 0xFF) ++at;  // any number of fill bytes
      if (encoded.size() - at < 3) return Uncovered::kDamaged;
      const uint8_t marker = encoded[at];
      const size_t length = static_cast<size_t>(encoded[at + 1]) << 8 | encoded[at + 2];
      if (length < 2 || length > encoded.size() - at - 1) return Uncovered::kDamaged;
      const Uncovered why = ReadSegment(marker, Segment(encoded.subspan(at + 3, length - 2)));
      if (why != Uncovered::kNone) return why;
      at += 1 + length;
      if (marker == kSos) break;
    }
    frame_.scan = at;
    return Resolve();
  }

 private:
  Uncovered ReadSegment(uint8_t marker, Segment segment) {
    switch (marker) {
      case kSof0:
      case kSof1:
        return ReadFrameHeader(segment);
      case kSof2:
        return Uncovered::kProgressive;
      case kDqt:
        return ReadQuantTables(segment);
      case kDht:
        return ReadHuffmanTables(segment);
      case kDri:
        if (segment.size() != 2) return Uncovered::kDamaged;
        restart_interval_ = segment.Word();
        return Uncovered::kNone;
      case kSos:
        return ReadScanHeader(segment);
      case kApp0:
        // As libjpeg: a JFIF marker that is too short is none.
        if (segment.size() >= 14 && std::memcmp(segment.Take(5), "JFIF", 5) == 0) has_jfif_ = true;
        return Uncovered::kNone;
      case kApp14:
        if (segment.size() >= 12) {
          const uint8_t* data = segment.Take(12);
          if (std::memcmp(data, "Adobe", 5) == 0) adobe_transform_ = data[11];
        }
        return Uncovered::kNone;
      default:
        if ((marker > kApp0 && marker <= kApp15) || marker == kCom) return Uncovered::kNone;
        if (marker >= kSof9 && marker <= kSof15) return Uncovered::kArithmetic;
        if (marker > kSof2 && marker < kJpg) return Uncovered::kPrecision;
        return Uncovered::kDamaged;
    }
  }

  Uncovered ReadFrameHeader(Segment segment) {
    if (has_frame_ || !segment.Has(6)) return Uncovered::kDamaged;
    has_frame_ = true;
    if (segment.Byte() != 8) return Uncovered::kPrecision;
    FrameShape& shape = frame_.shape;
    shape = FrameShape();
    shape.size.height = segment.Word();
    shape.size.width = segment.Word();
    if (shape.size.width < 1 || shape.size.height < 1 || shape.size.width > kMaxSide ||
        shape.size.height > kMaxSide) {
      return Uncovered::kDamaged;
    }
    shape.components = segment.Byte();
    if (shape.components != 1 && shape.components != 3) return Uncovered::kColour;
    if (segment.size() != static_cast<size_t>(shape.components) * 3) return Uncovered::kDamaged;
    for (int c = 0; c < shape.components; ++c) {
      ids_[c] = segment.Byte();
      const uint8_t factors = segment.Byte();
      shape.h[c] = factors >> 4;
      shape.v[c] = factors & 15;
      quant_of_[c] = segment.Byte();
      if (shape.h[c] < 1 || shape.h[c] > 4 || shape.v[c] < 1 || shape.v[c] > 4)
        return Uncovered::kDamaged;
      for (int other = 0; other < c; ++other) {
        if (ids_[other] == ids_[c]) return Uncovered::kDamaged;
      }
    }
    return Uncovered::kNone;
  }

  Uncovered ReadQuantTables(Segment segment) {
    while (segment.Has(65)) {
      const uint8_t kind = segment.Byte();
      if (kind >= kTables)
        return kind >> 4 == 1 ? Uncovered::kTables
                              : Uncovered::kDamaged;  // 16 bit steps, or nonsense
      quant_[kind] = segment.Take(64);
    }
    return segment.size() == 0 ? Uncovered::kNone : Uncovered::kTables;
  }

  Uncovered ReadHuffmanTables(Segment segment) {
    while (segment.Has(17)) {
      const uint8_t kind = segment.Byte();
      if ((kind & 15) >= kTables || kind >> 4 > 1) return Uncovered::kDamaged;
      HuffmanCode& code = kind >> 4 == 0 ? dc_[kind & 15] : ac_[kind & 15];
      code.counts = segment.Take(16);
      code.symbol_count = 0;
      for (int i = 0; i < 16; ++i) code.symbol_count += code.counts[i];
      if (code.symbol_count > 256 || !segment.Has(static_cast<size_t>(code.symbol_count)))
        return Uncovered::kDamaged;
      code.symbols = segment.Take(static_cast<size_t>(code.symbol_count));
    }
    return segment.size() == 0 ? Uncovered::kNone : Uncovered::kDamaged;
  }

  Uncovered ReadScanHeader(Segment segment) {
    const FrameShape& shape = frame_.shape;
    if (!has_frame_ || !segment.Has(1)) return Uncovered::kDamaged;
    const int components = segment.Byte();
    if (components != shape.components) return Uncovered::kProgressive;
    if (segment.size() != static_cast<size_t>(components) * 2 + 3) return Uncovered::kDamaged;
    for (int c = 0; c < components; ++c) {
      if (segment.Byte() != ids_[c]) return Uncovered::kDamaged;
      const uint8_t tables = segment.Byte();
      if (tables >> 4 >= kTables || (tables & 15) >= kTables) return Uncovered::kDamaged;
      frame_.dc[c] = dc_[tables >> 4];
      frame_.ac[c] = ac_[tables & 15];
      if (frame_.dc[c].counts == nullptr || frame_.ac[c].counts == nullptr)
        return Uncovered::kTables;
    }
    const int first = segment.Byte(), last = segment.Byte(), bits = segment.Byte();
    return first == 0 && last == 63 && bits == 0 ? Uncovered::kNone : Uncovered::kDamaged;
  }

  // What is known only once all headers have been seen.
  Uncovered Resolve() {
    FrameShape& shape = frame_.shape;
    if (restart_interval_ != 0) return Uncovered::kRestart;
    if (shape.components == 3 && !IsYcc()) return Uncovered::kColour;
    frame_.rows_together = shape.components == 1 ? shape.v[0] : 1;
    if (shape.components == 1)
      shape.h[0] = shape.v[0] = 1;  // a scan of one component has one block an MCU
    int blocks = 0;
    for (int c = 0; c < shape.components; ++c) blocks += shape.h[c] * shape.v[c];
    if (blocks > kMaxBlocksInMcu || !PlanesSupport(shape)) return Uncovered::kSampling;
    for (int c = 0; c < shape.components; ++c) {
      if (quant_of_[c] >= kTables || quant_[quant_of_[c]] == nullptr) return Uncovered::kTables;
      for (int k = 0; k < 64; ++k) {
        const uint8_t step = quant_[quant_of_[c]][k];
        if (step == 0) return Uncovered::kTables;
        frame_.quant[c][kNaturalOrder[k]] = step;
      }
    }
    return Uncovered::kNone;
  }

  // libjpeg's guess of what three components mean (jdapimin.c, default_decompress_parms), less the
  // doubtful cases.
  bool IsYcc() const {
    if (has_jfif_) return true;
    if (adobe_transform_ >= 0) return adobe_transform_ == 1;
    return ids_[0] == 1 && ids_[1] == 2 && ids_[2] == 3;
  }

  JpegFrame& frame_;
  bool has_frame_ = false, has_jfif_ = false;
  int adobe_transform_ = -1, restart_interval_ = 0;
  uint8_t ids_[kMaxComponents] = {}, quant_of_[kMaxComponents] = {};
  const uint8_t* quant_[kTables] = {};
  HuffmanCode dc_[kTables], ac_[kTables];
};

constexpr uint8_t kN = 64;

}  // namespace

const uint8_t kNaturalOrder[kZigzagEntries] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34,
    27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, kN, kN, kN, kN, kN, kN, kN, kN,
    kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN,
    kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN,
    kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN,
    kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN,
    kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN, kN,
};

absl::string_view UncoveredName(Uncovered why) {
  constexpr absl::string_view kNames[kUncoveredKinds] = {
      "",        "progressive", "arithmetic", "precision", "sampling",    "colour",
      "restart", "tables",      "damaged",    "guards",    "switched_off"};
  return kNames[static_cast<int>(why)];
}

Uncovered ReadFrame(absl::Span<const uint8_t> encoded, JpegFrame* frame) {
  return FrameReader(frame).Read(encoded);
}

}  // namespace feedwater::server::jpeg
