// Level 1: a region of a JPEG by libjpeg-turbo. Rows above the region are entropy-decoded only,
// columns beside it are not transformed, rows below it are never read. The pixels are those of a
// full decode with the accurate integer IDCT and fancy upsampling, bit for bit. Takes everything
// that libjpeg-turbo takes: progressive, arithmetic, any sampling, gray, CMYK.
//
// Verdict on damage: whatever makes libjpeg-turbo invent pixels of the region or of the rows above
// it (a bad Huffman code, data that ends early, a lost restart marker, ...) is an error "damaged
// JPEG: ...". Bytes too many between two markers and odd application markers change no pixel and
// are ignored. The verdict depends on the bytes and the region only.
//
// One decoder serves one thread, image after image: Open, Start, Read ..., Close. A fresh
// jpeg_decompress_struct is made per image on purpose: in a reused one the tables of the last image
// would stand in for tables that this image lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

class TurboDecoder final : public RegionDecoder {
 public:
  TurboDecoder();
  ~TurboDecoder() override;

  // `encoded` must stay until Close.
  absl::Status Open(absl::Span<const std::byte> encoded, const ImageLimits& limits);
  Size size() const;

  // Rows come out as RGB, 3 bytes a pixel.
  absl::Status Start(const Rect& region, int scale) override;
  absl::Status Read(int count, const uint8_t** rows) override;

  void Close();  // allowed in any state

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace feedwater::server
