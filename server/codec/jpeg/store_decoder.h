// Level 3: a region of a JPEG from its coefficient document (coefficient_store.h), without Huffman
// decoding and without touching the blocks that the region does not need. The pixels are
// libjpeg-turbo's, bit for bit. One decoder serves one thread, image after image; it allocates only
// while images grow.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/codec/jpeg/coefficient_store.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/row_source.h"

namespace feedwater::server::jpeg {

class StoreDecoder final : public RegionDecoder {
 public:
  // `document` must stay until the next Open. Any bytes are safe; DataLoss where they are not a
  // document. Does not verify the checksum (VerifyStore).
  absl::Status Open(absl::Span<const uint8_t> document);
  Size size() const { return view_.shape().size; }

  // REQUIRES: opened. Rows come out as RGB.
  absl::Status Start(const Rect& region, int scale) override;
  absl::Status Read(int count, const uint8_t** rows) override;

 private:
  absl::Status FillMcuRow(int mcu_row);

  StoreView view_;
  Planes planes_;
};

}  // namespace feedwater::server::jpeg
