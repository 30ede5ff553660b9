// What an image looks like once it was a JPEG: the pixels that libjpeg-turbo would decode from the
// file that libjpeg-turbo would write, without the file. Entropy coding loses nothing, so only the
// way to quantised coefficients and back is gone. Colours are halved in both directions (4:2:0), as
// libjpeg does by default; those of images up to four pixels wide are not, which libjpeg-turbo
// would not smooth. Where a quantised block lies beyond the guards (block_guard.h), versions of
// libjpeg differ; here its values are clipped.
//
// One object serves one thread, image after image; it allocates only while images grow.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/base/work_clock.h"
#include "server/codec/jpeg/block_row.h"
#include "server/codec/jpeg/forward_kernels.h"
#include "server/codec/jpeg/planes.h"
#include "server/codec/row_source.h"

namespace feedwater::server::jpeg {

class RoundTrip {
 public:
  static constexpr int kMaxSide = 65'500;  // of a JPEG

  // RGB or grey pixels to pixels of the same kind. An error is the clock's. REQUIRES: quality of
  // 1..100 (libjpeg's), sides of 1..kMaxSide, `out` is not `pixels`.
  absl::Status Run(const uint8_t* pixels, Size size, int channels, int quality, WorkClock& clock,
                   uint8_t* out);
  // What the object holds after an image of this size, at most.
  static int64_t Bytes(Size size, int channels);

 private:
  void FillMcuRow(int mcu_row);
  void ReadRows(int mcu_row);
  void TransformBlocks(int c, int block_row);

  const uint8_t* pixels_ = nullptr;
  Size size_;
  int channels_ = 0;
  Planes planes_;
  // Of the row of MCUs under way: samples of each component, with room behind each row.
  struct Component {
    uint16_t steps[kBlockSamples];
    Divisors divisors;
    size_t stride = 0;
    std::vector<uint8_t> samples;
  };
  Component components_[kMaxComponents];
  std::vector<uint8_t> chroma_;  // two rows each of Cb and Cr, at full width
  std::vector<int16_t> coefficients_;
  BlockLists lists_;
};

}  // namespace feedwater::server::jpeg
