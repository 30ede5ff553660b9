#include "server/codec/jpeg/round_trip.h"

#include <algorithm>
#include <cstring>

#include "server/codec/jpeg/block_guard.h"
#include "server/codec/jpeg/pixel_kernels.h"

namespace feedwater::server::jpeg {
namespace {

// The example tables of the standard (K.1 and K.2), in natural order.
constexpr uint8_t kLumaSteps[kBlockSamples] = {
    16, 11, 10, 16, 24,  40,  51,  61,  12, 12, 14, 19, 26,  58,  60,  55,
    14, 13, 16, 24, 40,  57,  69,  56,  14, 17, 22, 29, 51,  87,  80,  62,
    18, 22, 37, 56, 68,  109, 103, 77,  24, 35, 55, 64, 81,  104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99};
constexpr uint8_t kChromaSteps[kBlockSamples] = {
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99,
    99, 99, 47, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99};

// libjpeg's jpeg_quality_scaling, and jpeg_add_quant_table for a baseline file.
void ScaleSteps(const uint8_t* steps, int quality, uint16_t* scaled) {
  const int percent = quality < 50 ? 5000 / quality : 200 - 2 * quality;
  for (int i = 0; i < kBlockSamples; ++i)
    scaled[i] = static_cast<uint16_t>(std::clamp((steps[i] * percent + 50) / 100, 1, 255));
}

constexpr size_t kRowsOfMcu = 16;

bool IsHalved(Size size, int channels) { return channels == 3 && size.width > 4; }

FrameShape ShapeOf(Size size, int channels) {
  FrameShape shape;
  shape.size = size;
  shape.components = channels;
  if (IsHalved(size, channels)) shape.h[0] = shape.v[0] = 2;
  return shape;
}

size_t Stride(size_t samples) { return samples + 2 * 8 * kForwardBlocks + kForwardPadding; }

BlockKind KindOf(const int16_t* block) {
  uint64_t halves[16];
  std::memcpy(halves, block, sizeof(halves));
  uint64_t outside = 0, quarter = 0;
  for (int row = 0; row < 4; ++row) {
    outside |= halves[2 * row + 1] | halves[2 * row + 8] | halves[2 * row + 9];
    if (row > 0) quarter |= halves[2 * row];
  }
  if (outside != 0) return kFull;
  int16_t first[4];
  std::memcpy(first, block, sizeof(first));
  return quarter == 0 && (first[1] | first[2] | first[3]) == 0 ? kDcOnly : kQuarter;
}

}  // namespace

int64_t RoundTrip::Bytes(Size size, int channels) {
  const int64_t width = size.width + 2 * 16;
  const auto stride = static_cast<int64_t>(Stride(static_cast<size_t>(width)));
  const int64_t samples = static_cast<int64_t>(kRowsOfMcu) * stride * channels + 4 * stride;
  const int64_t coefficients = (width / 8 + 4) * kBlockSamples * 2;
  // Planes: twice two rows of blocks of each component, a row of each, and kMaxRows of RGB.
  const int64_t planes = (width + 512) * (32 + 1) * channels +
                         (3 * width + 512) * static_cast<int64_t>(RowSource::kMaxRows);
  return samples + coefficients + planes;
}

absl::Status RoundTrip::Run(const uint8_t* pixels, Size size, int channels, int quality,
                            WorkClock& clock, uint8_t* out) {
  pixels_ = pixels;
  size_ = size;
  channels_ = channels;
  planes_.Start(ShapeOf(size, channels), {0, 0, size.width, size.height}, 1);
  size_t most = 0;
  for (int c = 0; c < channels; ++c) {
    Component& component = components_[c];
    ScaleSteps(c == 0 ? kLumaSteps : kChromaSteps, quality, component.steps);
    component.divisors = Divisors(component.steps);
    const auto blocks = static_cast<size_t>(planes_.block_columns(c).count);
    component.stride = Stride(8 * blocks);
    GrowExactly(component.samples, kRowsOfMcu * component.stride);
    most = std::max(most, blocks);
  }
  if (channels == 3) GrowExactly(chroma_, 4 * Stride(8 * (most + 1)));
  GrowExactly(coefficients_, (most + kForwardBlocks) * kBlockSamples);
  lists_.Reserve(most);

  const auto row_bytes = static_cast<size_t>(size.width) * static_cast<size_t>(channels);
  for (int y = 0; y < size.height;) {
    const absl::Status status = clock.Check();
    if (!status.ok()) return status;
    const uint8_t* rows[RowSource::kMaxRows];
    const int count = std::min(size.height - y, RowSource::kMaxRows);
    const absl::Status read = planes_.Read(count, rows, [&](int mcu_row) {
      FillMcuRow(mcu_row);
      return absl::OkStatus();
    });
    if (!read.ok()) return read;
    for (int i = 0; i < count; ++i, ++y, out += row_bytes) {
      if (channels == 3) {
        std::memcpy(out, rows[i], row_bytes);
      } else {
        for (size_t x = 0; x < row_bytes; ++x) out[x] = rows[i][3 * x];
      }
    }
  }
  return absl::OkStatus();
}

void RoundTrip::FillMcuRow(int mcu_row) {
  ReadRows(mcu_row);
  for (int c = 0; c < channels_; ++c) {
    const BlockSpan rows = planes_.block_rows_of_mcu_row(c, mcu_row);
    for (int row = rows.first; row < rows.end(); ++row) TransformBlocks(c, row);
  }
}

// The samples of a row of MCUs. Rows and columns beyond the image repeat its last ones: of halved
// colours the last mean.
void RoundTrip::ReadRows(int mcu_row) {
  const ForwardKernels& kernels = ActiveForwardKernels();
  const bool is_halved = IsHalved(size_, channels_);
  const auto width = static_cast<size_t>(size_.width);
  const int count = is_halved ? 16 : 8, first = mcu_row * count;
  const auto extend = [](uint8_t* row, size_t from, size_t to) {
    if (from < to) std::memset(row + from, row[from - 1], to - from);
  };
  const auto row_of = [&](int c, int row) {
    return components_[c].samples.data() + static_cast<size_t>(row) * components_[c].stride;
  };
  const auto samples_wide = [&](int c) {
    return 8 * static_cast<size_t>(planes_.block_columns(c).count);
  };
  const size_t chroma_stride = chroma_.size() / 4;
  for (int i = 0; i < count; ++i) {
    const int y = std::min(first + i, size_.height - 1);
    const uint8_t* const from =
        pixels_ + static_cast<size_t>(y) * width * static_cast<size_t>(channels_);
    if (channels_ == 1) {
      std::memcpy(row_of(0, i), from, width);
      extend(row_of(0, i), width, samples_wide(0));
      continue;
    }
    uint8_t* const blue = is_halved ? chroma_.data() + i % 2 * chroma_stride : row_of(1, i);
    uint8_t* const red = is_halved ? chroma_.data() + (2 + i % 2) * chroma_stride : row_of(2, i);
    kernels.rgb_to_ycc(from, width, row_of(0, i), blue, red);
    extend(row_of(0, i), width, samples_wide(0));
    const size_t wide = samples_wide(1) * (is_halved ? 2 : 1);
    extend(blue, width, wide);
    extend(red, width, wide);
    if (!is_halved || i % 2 == 0) continue;
    const int last = (size_.height - 1) / 2 - first / 2;  // of the halved rows
    for (int c = 1; c < 3; ++c) {
      uint8_t* const to = row_of(c, i / 2);
      if (i / 2 > last) {
        std::memcpy(to, row_of(c, last), samples_wide(c));
      } else {
        const uint8_t* const above = chroma_.data() + (c - 1) * 2 * chroma_stride;
        kernels.halve(above, above + chroma_stride, samples_wide(c), to);
      }
    }
  }
}

void RoundTrip::TransformBlocks(int c, int block_row) {
  const Component& component = components_[c];
  const int rows_of_mcu = channels_ == 3 && c == 0 && IsHalved(size_, channels_) ? 2 : 1;
  const auto blocks = static_cast<size_t>(planes_.block_columns(c).count);
  const uint8_t* const samples =
      component.samples.data() +
      static_cast<size_t>(block_row % rows_of_mcu) * 8 * component.stride;
  ActiveForwardKernels().forward_row(samples, component.stride, blocks, component.divisors,
                                     coefficients_.data());
  lists_.Clear();
  for (size_t i = 0; i < blocks; ++i) {
    lists_.Add(KindOf(coefficients_.data() + kBlockSamples * i), static_cast<uint16_t>(i));
  }
  uint8_t* const to = planes_.BlockRow(c, block_row);
  const size_t stride = planes_.stride(c);
  if (ActivePixelKernels().transform_row(coefficients_.data(), lists_, component.steps, 8, to,
                                         stride)) {
    return;
  }
  for (size_t i = 0; i < blocks; ++i) {
    ClipBlockPlain(coefficients_.data() + kBlockSamples * i, component.steps, to + 8 * i,
                   static_cast<int>(stride));
  }
}

}  // namespace feedwater::server::jpeg
