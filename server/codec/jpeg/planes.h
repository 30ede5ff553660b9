// From planes of samples to RGB rows: what every own JPEG decoder does after the inverse DCT. Says
// which blocks of each component a region needs (with the context of one sample that exact fancy
// upsampling looks at), keeps the last two rows of MCUs of each component, so that samples are
// still in the core's cache when they become pixels, and hands out the region's rows from top to
// bottom.
//
// An image may be decoded at 1/2, 1/4 or 1/8 of its size, by blocks of fewer samples. Chroma is
// then reduced by less than luma as far as it has fewer samples, as libjpeg-turbo does it: 4:2:0 at
// 1/2 needs no upsampling.
//
// One object serves one thread, image after image; it allocates only while images grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/codec/row_source.h"

namespace feedwater::server::jpeg {

inline constexpr int kMaxComponents = 3;

// A gray or Y, Cb, Cr image. The one component of a gray image has 1x1, whatever its file says.
struct FrameShape {
  Size size;
  int components = 0;                                                // 1 or 3
  int h[kMaxComponents] = {1, 1, 1}, v[kMaxComponents] = {1, 1, 1};  // sampling factors

  int max_h() const;
  int max_v() const;
  // How many pixels a sample of component c is wide and high.
  int step_x(int c) const { return max_h() / h[c]; }
  int step_y(int c) const { return max_v() / v[c]; }
  // Real samples, and real blocks: the dummy blocks that fill up the last MCUs do not count.
  int samples_wide(int c) const { return (size.width * h[c] + max_h() - 1) / max_h(); }
  int samples_high(int c) const { return (size.height * v[c] + max_v() - 1) / max_v(); }
  int blocks_wide(int c) const { return (samples_wide(c) + 7) / 8; }
  int blocks_high(int c) const { return (samples_high(c) + 7) / 8; }

  friend bool operator==(const FrameShape&, const FrameShape&) = default;
};

// Whether Planes gives libjpeg-turbo's pixels: gray, 4:4:4, 4:2:2, 4:2:0 and 4:4:0 by whatever
// factors, chroma wider than two samples where it is halved in width (else libjpeg-turbo
// replicates), sides of 1..65500. Takes any values.
bool PlanesSupport(const FrameShape& shape);

// Samples that a block of component c is wide and high when the image is decoded at 1 / scale: 8,
// 4, 2 or 1. REQUIRES: PlanesSupport(shape), scale is 1, 2, 4 or 8.
int BlockSide(const FrameShape& shape, int c, int scale);

struct BlockSpan {
  int first = 0, count = 0;
  int end() const { return first + count; }
};

class Planes {
 public:
  // REQUIRES: PlanesSupport(shape), scale is 1, 2, 4 or 8, and region is not empty and lies within
  // the image at 1 / scale of its size, rounded up.
  void Start(const FrameShape& shape, const Rect& region, int scale);

  const FrameShape& shape() const { return shape_; }
  const Rect& region() const { return region_; }

  // The blocks of component c that the region needs, and the rows of MCUs that hold them.
  BlockSpan block_columns(int c) const { return planes_[c].columns; }
  BlockSpan block_rows(int c) const { return planes_[c].rows; }
  BlockSpan mcu_rows() const { return mcu_rows_; }
  int block_side(int c) const { return 1 << planes_[c].side_bits; }
  // Whether the last pixel rows of a row of MCUs wait for the samples of the next one.
  bool waits_for_next() const { return waits_for_next_; }
  // Those of block_rows(c) that lie in one row of MCUs; may be empty.
  BlockSpan block_rows_of_mcu_row(int c, int mcu_row) const;

  // Where the samples of the first wanted block of a block row go, block after block; `stride`
  // bytes to the next row. REQUIRES: the row is one of block_rows(c).
  uint8_t* BlockRow(int c, int block_row);
  size_t stride(int c) const { return planes_[c].stride; }

  // The next `count` rows of the region as RowSource::Read gives them. Calls `fill` for each row of
  // MCUs in order, once, as late as possible: it writes the samples of the wanted blocks by
  // BlockRow. Fails as `fill` fails. REQUIRES: count <= RowSource::kMaxRows, and no more rows in
  // total than the region has.
  absl::Status Read(int count, const uint8_t** rows,
                    absl::FunctionRef<absl::Status(int mcu_row)> fill);

 private:
  struct Plane {
    BlockSpan columns, rows;
    int side_bits = 3;           // of a block: 1 << side_bits samples
    int step_x = 1, step_y = 1;  // pixels of a sample
    // Whether a pixel is blended of two samples along the axis, or the sample is repeated.
    bool blends_x = false, blends_y = false;
    int wide = 0, high = 0;  // real samples
    int ring_rows = 2;       // rows of blocks kept
    size_t stride = 0, block_row_bytes = 0;
    std::vector<uint8_t> samples;    // two rows of MCUs, by turns
    std::vector<uint8_t> upsampled;  // one row
  };

  int RowsReady() const;  // image row below the last that can be finished
  const uint8_t* SampleRow(int c, int y) const;
  const uint8_t* PixelRow(int c, int y);
  void FinishRow(int y, uint8_t* rgb);

  FrameShape shape_;
  Rect region_;
  BlockSpan mcu_rows_;
  int next_mcu_row_ = 0;
  int next_y_ = 0;
  int rows_ready_ = 0;  // as of the last row of MCUs
  bool waits_for_next_ = false;
  Plane planes_[kMaxComponents];
  std::vector<uint8_t> rgb_;
  size_t rgb_stride_ = 0;
};

}  // namespace feedwater::server::jpeg
