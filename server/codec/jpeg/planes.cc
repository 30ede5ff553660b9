#include "server/codec/jpeg/planes.h"

#include <algorithm>

#include "server/codec/jpeg/block_row.h"
#include "server/codec/jpeg/pixel_kernels.h"
#include "server/codec/jpeg/plain_pixels.h"

namespace feedwater::server::jpeg {
namespace {

constexpr int kMaxSide = 65'500;  // libjpeg's JPEG_MAX_DIMENSION
constexpr int kMaxFactor = 4;
constexpr size_t kLine = 64;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The blocks that pixels first .. first + count - 1 need along one axis.
BlockSpan Blocks(int first, int count, int step, bool blends, int samples, int side_bits) {
  int low = first / step, high = (first + count - 1) / step;
  if (blends) {  // a pixel is made of its sample and the next one on its side
    if (first % 2 == 0) --low;
    if ((first + count - 1) % 2 == 1) ++high;
  }
  low = std::max(low, 0) >> side_bits;
  high = std::min(high, samples - 1) >> side_bits;
  return {low, high - low + 1};
}

}  // namespace

int FrameShape::max_h() const {
  return components == 1 ? h[0] : std::max(h[0], std::max(h[1], h[2]));
}
int FrameShape::max_v() const {
  return components == 1 ? v[0] : std::max(v[0], std::max(v[1], v[2]));
}

bool PlanesSupport(const FrameShape& shape) {
  if (shape.size.width < 1 || shape.size.width > kMaxSide) return false;
  if (shape.size.height < 1 || shape.size.height > kMaxSide) return false;
  if (shape.components == 1) return shape.h[0] == 1 && shape.v[0] == 1;
  if (shape.components != 3) return false;
  for (int c = 0; c < 3; ++c) {
    if (shape.h[c] < 1 || shape.h[c] > kMaxFactor || shape.v[c] < 1 || shape.v[c] > kMaxFactor)
      return false;
  }
  const int max_h = shape.max_h(), max_v = shape.max_v();
  if (shape.h[0] != max_h || shape.v[0] != max_v) return false;
  for (int c = 1; c < 3; ++c) {
    if (max_h % shape.h[c] != 0 || max_v % shape.v[c] != 0) return false;
    if (shape.step_x(c) > 2 || shape.step_y(c) > 2) return false;
    if (shape.step_x(c) == 2 && shape.samples_wide(c) <= 2) return false;
  }
  return true;
}

int BlockSide(const FrameShape& shape, int c, int scale) {
  const int least = 8 / scale;
  int side = least;
  while (side < 8 && shape.max_h() * least % (shape.h[c] * side * 2) == 0 &&
         shape.max_v() * least % (shape.v[c] * side * 2) == 0) {
    side *= 2;
  }
  return side;
}

void Planes::Start(const FrameShape& shape, const Rect& region, int scale) {
  shape_ = shape;
  region_ = region;
  next_y_ = region.y;
  rows_ready_ = region.y;
  waits_for_next_ = false;
  int first = -1, end = 0;
  for (int c = 0; c < shape.components; ++c) {
    Plane& plane = planes_[c];
    const int least = 8 / scale, side = BlockSide(shape, c, scale);
    plane.side_bits = __builtin_ctz(static_cast<unsigned>(side));
    plane.step_x = shape.step_x(c) * least / side;
    plane.step_y = shape.step_y(c) * least / side;
    const auto samples = [side](int pixels, int factor, int max_factor) {
      return (pixels * factor * side + 8 * max_factor - 1) / (8 * max_factor);
    };
    plane.wide = samples(shape.size.width, shape.h[c], shape.max_h());
    plane.high = samples(shape.size.height, shape.v[c], shape.max_v());
    plane.blends_x = plane.step_x == 2 && least > 1 && plane.wide > 2;
    plane.blends_y = plane.step_y == 2 && least > 1;
    waits_for_next_ |= plane.blends_y;
    plane.ring_rows = 2 * shape.v[c];
    plane.columns =
        Blocks(region.x, region.width, plane.step_x, plane.blends_x, plane.wide, plane.side_bits);
    plane.rows =
        Blocks(region.y, region.height, plane.step_y, plane.blends_y, plane.high, plane.side_bits);
    // An odd number of cache lines: rows of a block do not fall into the same sets.
    plane.stride =
        RoundUp((static_cast<size_t>(plane.columns.count) << plane.side_bits) + kRowPadding, kLine);
    plane.stride |= kLine;
    plane.block_row_bytes = plane.stride << plane.side_bits;
    const size_t bytes = 2 * shape.v[c] * plane.block_row_bytes + kRowPadding;
    GrowExactly(plane.samples, bytes);
    const size_t upsampled = static_cast<size_t>(region.width) + 2 * kRowPadding;
    GrowExactly(plane.upsampled, upsampled);
    const int low = plane.rows.first / shape.v[c], high = (plane.rows.end() - 1) / shape.v[c];
    first = first < 0 ? low : std::min(first, low);
    end = std::max(end, high + 1);
  }
  mcu_rows_ = {first, end - first};
  next_mcu_row_ = first;
  rgb_stride_ = RoundUp(static_cast<size_t>(region.width) * 3 + kRowPadding, kLine);
  const size_t bytes = RowSource::kMaxRows * rgb_stride_ + kRowPadding;
  GrowExactly(rgb_, bytes);
}

BlockSpan Planes::block_rows_of_mcu_row(int c, int mcu_row) const {
  const int first = std::max(planes_[c].rows.first, mcu_row * shape_.v[c]);
  const int end = std::min(planes_[c].rows.end(), (mcu_row + 1) * shape_.v[c]);
  return {first, std::max(0, end - first)};
}

uint8_t* Planes::BlockRow(int c, int block_row) {
  Plane& plane = planes_[c];
  return plane.samples.data() + (block_row % plane.ring_rows) * plane.block_row_bytes;
}

const uint8_t* Planes::SampleRow(int c, int y) const {
  const Plane& plane = planes_[c];
  const int row = y >> plane.side_bits;
  return plane.samples.data() + (row % plane.ring_rows) * plane.block_row_bytes +
         (y - (row << plane.side_bits)) * plane.stride;
}

int Planes::RowsReady() const {
  int ready = region_.y + region_.height;
  for (int c = 0; c < shape_.components; ++c) {
    const Plane& plane = planes_[c];
    const int samples = next_mcu_row_ * shape_.v[c] << plane.side_bits;
    if (samples >= std::min(plane.rows.end() << plane.side_bits, plane.high)) continue;
    // The last of two pixel rows needs the sample row below its own, if it is blended.
    ready = std::min(ready, plane.step_y * samples - (plane.blends_y ? 1 : 0));
  }
  return ready;
}

// The row of component c at full width; its first pixel is region_.x.
const uint8_t* Planes::PixelRow(int c, int y) {
  Plane& plane = planes_[c];
  const PixelKernels& kernels = ActivePixelKernels();
  const int first = plane.columns.first << plane.side_bits;
  const uint8_t* near = SampleRow(c, y / plane.step_y);
  uint8_t* to = plane.upsampled.data();
  if (!plane.blends_y) {
    if (plane.step_x == 1) return near + (region_.x - first);
    if (plane.blends_x) {
      kernels.upsample_h2v1(near, first, plane.wide, region_.x, region_.width, to);
    } else {
      RepeatPlain(near, first, region_.x, region_.width, to);
    }
    return to;
  }
  const int below = std::min(y / 2 + 1, plane.high - 1), above = std::max(y / 2 - 1, 0);
  const uint8_t* far = SampleRow(c, y % 2 == 1 ? below : above);
  if (plane.step_x == 1) {
    kernels.upsample_h1v2(near + (region_.x - first), far + (region_.x - first), y % 2 == 1,
                          region_.width, to);
  } else {
    kernels.upsample_h2v2(near, far, first, plane.wide, region_.x, region_.width, to);
  }
  return to;
}

void Planes::FinishRow(int y, uint8_t* rgb) {
  const PixelKernels& kernels = ActivePixelKernels();
  const uint8_t* luma = PixelRow(0, y);
  if (shape_.components == 1) {
    kernels.gray_to_rgb(luma, region_.width, rgb);
  } else {
    kernels.ycc_to_rgb(luma, PixelRow(1, y), PixelRow(2, y), region_.width, rgb);
  }
}

absl::Status Planes::Read(int count, const uint8_t** rows,
                          absl::FunctionRef<absl::Status(int mcu_row)> fill) {
  for (int i = 0; i < count; ++i, ++next_y_) {
    while (rows_ready_ <= next_y_) {
      const absl::Status status = fill(next_mcu_row_);
      if (!status.ok()) return status;
      ++next_mcu_row_;
      rows_ready_ = RowsReady();
    }
    uint8_t* to = rgb_.data() + i * rgb_stride_;
    FinishRow(next_y_, to);
    rows[i] = to;
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server::jpeg
