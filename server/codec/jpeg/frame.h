// What the own decoders need of a JPEG's headers: everything between SOI and the scan. Strictly
// stricter than libjpeg: whatever libjpeg refuses, warns of or decodes in another way is not
// covered here and goes to libjpeg-turbo, whose verdict holds. Views into the file; nothing is
// copied but the quantisation steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/codec/jpeg/planes.h"

namespace feedwater::server::jpeg {

// Why the own decoders leave an image to libjpeg-turbo.
enum class Uncovered : uint8_t {
  kNone,         // they do not
  kProgressive,  // several scans, or one of parts
  kArithmetic,
  kPrecision,  // 12 or 16 bits, lossless
  kSampling,
  kColour,       // CMYK, YCCK, RGB
  kRestart,      // restart intervals
  kTables,       // quantisation steps or Huffman tables out of the ordinary
  kDamaged,      // headers or codes that are wrong, data that ends early
  kGuards,       // coefficients for which libjpeg-turbo's own paths differ
  kSwitchedOff,  // for comparisons
};
inline constexpr int kUncoveredKinds = 11;
absl::string_view UncoveredName(Uncovered why);  // "progressive", ...; "" for kNone

// A Huffman table as the file has it.
struct HuffmanCode {
  const uint8_t* counts = nullptr;   // of codes of 1..16 bits
  const uint8_t* symbols = nullptr;  // by length
  int symbol_count = 0;
};

struct JpegFrame {
  FrameShape shape;
  uint16_t quant[kMaxComponents][64];  // natural order, 1..255
  HuffmanCode dc[kMaxComponents], ac[kMaxComponents];
  size_t scan = 0;  // offset of the scan's first byte
  // Rows of MCUs that libjpeg decodes together: more than one in a gray image whose file gives its
  // only component a factor.
  int rows_together = 1;

  int mcus_wide() const { return (shape.size.width + 8 * shape.max_h() - 1) / (8 * shape.max_h()); }
  int mcus_high() const {
    return (shape.size.height + 8 * shape.max_v() - 1) / (8 * shape.max_v());
  }
};

// Any bytes are safe.
Uncovered ReadFrame(absl::Span<const uint8_t> encoded, JpegFrame* frame);

// Position in a block, row by row, of the k-th coefficient of a scan; 64, a place that does not
// exist, for k beyond 63.
inline constexpr int kZigzagEntries = 192;
extern const uint8_t kNaturalOrder[kZigzagEntries];

}  // namespace feedwater::server::jpeg
