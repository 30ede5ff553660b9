// Where in a JPEG's scan decoding can begin: at every so many MCUs the place of the next bit and
// the DC predictors. With it, a region costs the decoding of its own MCUs and a little more, not of
// everything above and beside it. Made by the decoder on its way through an image, and grown when
// a later region leads further down.
//
// An index belongs to one content: whoever keeps it keeps it under the content's hash. As a
// document (Encode, Decode) it takes about 1 % of the file. Any document is safe: what is decoded
// from a wrong one is wrong or refused, never out of bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/codec/jpeg/planes.h"

namespace feedwater::server::jpeg {

struct SeekPoint {
  uint32_t byte = 0;  // of the scan as it stands in the file
  uint8_t bit = 0;    // of that byte, from its high end
  int16_t dc[kMaxComponents] = {0, 0, 0};

  uint64_t bits() const { return uint64_t{byte} * 8 + bit; }
  friend bool operator==(const SeekPoint&, const SeekPoint&) = default;
};

struct SeekIndex {
  static constexpr size_t kMaxScanBytes = 1 << 29;

  int components = 0;
  int spacing = 1;  // MCUs from point to point
  int mcus = 0;     // so many from the image's first one were decoded without a fault
  // Point k stands before MCU k * spacing; the last one before MCU `mcus`.
  std::vector<SeekPoint> points;

  // An index of nothing yet, for a scan of so many bytes and MCUs.
  void Start(int frame_components, size_t scan_bytes, int frame_mcus);
  bool empty() const { return mcus == 0; }
  void Clear() { mcus = 0; }

  // The last point at or before the MCU, and the first at or behind it. REQUIRES: !empty(), and
  // mcu <= mcus.
  const SeekPoint& Before(int mcu) const { return points[static_cast<size_t>(mcu / spacing)]; }
  const SeekPoint& Behind(int mcu) const {
    return points[static_cast<size_t>((mcu + spacing - 1) / spacing)];
  }

  void Encode(std::vector<std::byte>* document) const;
  // False, and empty, when the document is none for a frame of so many components and MCUs.
  bool Decode(absl::Span<const std::byte> document, int frame_components, int frame_mcus);
};

}  // namespace feedwater::server::jpeg
