// Rows of a region in, finished output out: resampling, mirroring and conversion in one pass.
//
// Filtered: a band of 16 rows is filtered along x into a ring of rows; whenever an output row has
// all the rows it needs, it is filtered along y and written. First x, then y, as Pillow does. Where
// an output needs more than 16 rows (a strong reduction), rows are added into 32 bit sums of the
// few output rows they touch instead, so that memory does not grow with the reduction.
//
// Not filtered (no change of size, or nearest): pixels are picked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/codec/axis_filter.h"
#include "server/codec/image.h"
#include "server/codec/pixel_writer.h"
#include "server/codec/plane_kernels.h"
#include "server/codec/resample_kernels.h"
#include "server/codec/row_source.h"

namespace feedwater::server {

class Resampler {
 public:
  // Settles what is needed of a stored image for `geometry`. `mirror_x/y`: the image is stored
  // mirrored against the geometry's coordinates (EXIF). `scale`: the rows will be those of the
  // image at 1 / scale of its size. Returns the region to decode, in stored coordinates of the
  // image so scaled. REQUIRES: geometry is valid for `stored`, interpolation is not kOpenCvLinear
  // unless scaled equals the crop; `scale` is 1 for kNearest.
  Rect Plan(const Geometry& geometry, Size stored, bool mirror_x, bool mirror_y, int scale);

  // Reads the planned region from `source` and writes the output.
  absl::Status Run(RowSource& source, int channels, const PixelFormat& format, std::byte* out);

  // Frees what images have left behind, if it is more than `bytes`.
  void GiveBackOver(size_t bytes);

 private:
  void PrepareAxis();
  absl::Status RunPicked(RowSource& source);
  absl::Status RunFiltered(RowSource& source);
  void PickRow(const uint8_t* row, int y);
  void FilterBand(const uint8_t* const* rows, int count, int first_row);
  void EmitNarrow(int rows_ready);
  void AccumulateWide(int first_row, int count);

  int16_t* RingRow(int y) {
    return ring_ + static_cast<size_t>(y % kRingRows) * channels_ * plane_;
  }

  static constexpr int kRingRows = 32;  // at least a band and 16 taps

  const kernels::ResampleTable* kernels_ = nullptr;
  const kernels::PlaneTable* planes_ = nullptr;
  AxisFilter x_, y_;
  kernels::AxisWeights axis_;           // x_ as the kernels want it
  std::vector<int32_t> start_, pairs_;  // of it
  bool picked_ = false, contiguous_ = false, reversed_ = false, flip_vertical_ = false;
  Rect region_;
  int channels_ = 3;
  size_t plane_ = 0;  // samples of one channel in an intermediate row, a multiple of 32
  int next_output_ = 0;
  PixelWriter writer_;

  // Intermediate buffers, aligned to 64 bytes, in one allocation.
  std::vector<std::byte> memory_;
  int16_t* scratch_ = nullptr;   // of the filter along x
  int16_t* ring_ = nullptr;      // rows after filtering along x
  uint8_t* finished_ = nullptr;  // one output row, planar
  uint8_t* mirrored_ = nullptr;  // one row of pixels that are picked from right to left
  std::vector<int32_t> sums_;    // wide only: kSumRows output rows
  size_t sum_rows_ = 0;
};

}  // namespace feedwater::server
