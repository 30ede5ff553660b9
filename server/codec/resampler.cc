#include "server/codec/resampler.h"

#include <algorithm>
#include <cstring>

#include "server/base/status.h"

namespace feedwater::server {
namespace {

using kernels::kBandRows;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Samples `first` .. `first` + box.in - 1 of an axis at 1 / scale hold the crop of `length` samples
// from `start` on.
struct ScaledCrop {
  int first;
  AxisBox box;

  ScaledCrop(int start, int length, int scale, bool mirrored) : first(start / scale) {
    box.in = (start + length + scale - 1) / scale - first;
    box.length = static_cast<double>(length) / scale;
    box.offset = static_cast<double>(start - first * scale) / scale;
    if (mirrored) box.offset = box.in - box.length - box.offset;
  }
  bool Is(int outputs) const { return box.offset == 0 && box.length == outputs; }
};

}  // namespace

Rect Resampler::Plan(const Geometry& geometry, Size stored, bool mirror_x, bool mirror_y,
                     int scale) {
  const Rect& full = geometry.crop;
  const ScaledCrop x(mirror_x ? stored.width - full.x - full.width : full.x, full.width, scale,
                     mirror_x);
  const ScaledCrop y(mirror_y ? stored.height - full.y - full.height : full.y, full.height, scale,
                     mirror_y);
  const Rect& window = geometry.window;
  const bool same_size = x.Is(geometry.scaled.width) && y.Is(geometry.scaled.height);
  picked_ = same_size || geometry.interpolation == Interpolation::kNearest;
  if (same_size) {
    x_.BuildIdentity(x.box.in, window.x, window.width, mirror_x);
    y_.BuildIdentity(y.box.in, window.y, window.height, mirror_y);
  } else {
    const Kernel kernel = geometry.interpolation == Interpolation::kNearest   ? Kernel::kNearest
                          : geometry.interpolation == Interpolation::kBicubic ? Kernel::kCubic
                                                                              : Kernel::kTriangle;
    x_.Build(x.box, geometry.scaled.width, window.x, window.width, kernel, mirror_x);
    y_.Build(y.box, geometry.scaled.height, window.y, window.height, kernel, mirror_y);
  }
  contiguous_ =
      picked_ && x_.end - x_.begin == x_.count && (same_size || x.Is(geometry.scaled.width));
  reversed_ = geometry.flip_horizontal != mirror_x;
  flip_vertical_ = geometry.flip_vertical != mirror_y;
  region_ = {x.first + x_.begin, y.first + y_.begin, x_.end - x_.begin, y_.end - y_.begin};
  return region_;
}

absl::Status Resampler::Run(RowSource& source, int channels, const PixelFormat& format,
                            std::byte* out) {
  kernels_ = &kernels::Resample();
  planes_ = &kernels::Planes();
  channels_ = channels;
  plane_ = RoundUp(x_.count, 32);
  next_output_ = 0;
  writer_.Start(format, x_.count, y_.count, channels, flip_vertical_, out, *planes_);

  // Sizes: everything is within 2^40, since an axis has at most 2^20 outputs and an image 2^17
  // columns.
  const size_t row = channels_ * plane_;
  const size_t scratch = picked_        ? 0
                         : x_.is_wide() ? kernels::WideScratchSamples(
                                              static_cast<size_t>(region_.width) * channels_, row)
                                        : kernels::kStripSamples;
  const size_t ring = picked_ ? 0 : row * kRingRows;
  const size_t bytes = 64 + 2 * (scratch + ring) + RoundUp(row, 64) + (picked_ ? row : 0);
  if (memory_.size() < bytes)
    memory_.resize(bytes);  // does not shrink: growing again would clear it
  scratch_ = reinterpret_cast<int16_t*>(RoundUp(reinterpret_cast<uintptr_t>(memory_.data()), 64));
  ring_ = scratch_ + scratch;
  finished_ = reinterpret_cast<uint8_t*>(ring_ + ring);
  mirrored_ = finished_ + RoundUp(row, 64);
  if (!picked_) PrepareAxis();
  const absl::Status status = picked_ ? RunPicked(source) : RunFiltered(source);
  writer_.Finish();
  return status;
}

void Resampler::GiveBackOver(size_t bytes) {
  const size_t held = memory_.capacity() +
                      sizeof(int32_t) * (sums_.capacity() + start_.capacity() + pairs_.capacity());
  if (held + x_.HeldBytes() + y_.HeldBytes() + writer_.HeldBytes() > bytes) *this = Resampler();
}

void Resampler::PrepareAxis() {
  // The kernels want 8 outputs at least. Made up ones are further ones of the left or right end, so
  // that they come out behind the others.
  const int count = std::max(8, x_.count);
  const int made_up = reversed_ ? count - x_.count : 0;
  const auto stored = [&](int i) { return std::clamp(i - made_up, 0, x_.count - 1); };
  start_.resize(count);
  for (int i = 0; i < count; ++i) start_[i] = x_.start[stored(i)] * channels_;
  const size_t taps = x_.taps;
  if (!x_.is_wide()) {
    pairs_.resize(count * taps);
    for (int i = 0; i < count; ++i) {
      std::transform(&x_.narrow[stored(i) * taps], &x_.narrow[stored(i) * taps] + taps,
                     &pairs_[i * taps], kernels::PairedWeight);
    }
  }
  axis_.start = start_.data() + (x_.is_wide() ? made_up : 0);
  axis_.weights = x_.is_wide() ? x_.wide.data() : pairs_.data();
  axis_.taps = x_.taps;
  axis_.channels = channels_;
  axis_.count = x_.is_wide() ? x_.count : count;
  axis_.samples = static_cast<size_t>(region_.width) * channels_;
  axis_.reversed = reversed_;
  axis_.plane = plane_;
}

absl::Status Resampler::RunPicked(RowSource& source) {
  const uint8_t* rows[RowSource::kMaxRows];
  for (int first = 0; first < region_.height; first += RowSource::kMaxRows) {
    const int count = std::min(RowSource::kMaxRows, region_.height - first);
    FW_RETURN_IF_ERROR(source.Read(count, rows));
    for (; next_output_ < y_.count && y_.start[next_output_] < first + count; ++next_output_) {
      PickRow(rows[y_.start[next_output_] - first], next_output_);
    }
  }
  return absl::OkStatus();
}

void Resampler::PickRow(const uint8_t* row, int y) {
  const size_t width = x_.count;
  if (contiguous_ && writer_.IsPlainBytes()) {
    uint8_t* const to = writer_.InterleavedRow(y);
    if (reversed_) {
      planes_->mirror(row, width, channels_, to);
    } else {
      std::memcpy(to, row, width * channels_);
    }
    return;
  }
  const bool by_row = contiguous_ && reversed_;
  if (by_row) {
    planes_->mirror(row, width, channels_, mirrored_);
    row = mirrored_;
  }
  if (contiguous_ && channels_ == 3) {
    planes_->deinterleave3(row, width, plane_, finished_);
  } else {
    for (size_t x = 0; x < width; ++x) {
      const uint8_t* pixel = row + static_cast<size_t>(x_.start[x]) * channels_;
      for (int c = 0; c < channels_; ++c) finished_[c * plane_ + x] = pixel[c];
    }
  }
  if (reversed_ && !by_row) {
    for (int c = 0; c < channels_; ++c)
      std::reverse(finished_ + c * plane_, finished_ + c * plane_ + width);
  }
  writer_.WritePlanes(y, finished_, plane_);
}

absl::Status Resampler::RunFiltered(RowSource& source) {
  if (y_.is_wide()) {
    // As many sums as there are outputs that one row can touch.
    sum_rows_ = 1;
    for (int i = 0, j = 0; i < y_.count; ++i) {
      while (j < y_.count && y_.start[j] < y_.start[i] + y_.taps) ++j;
      sum_rows_ = std::max<size_t>(sum_rows_, j - i);
    }
    sums_.resize(sum_rows_ * channels_ * plane_ + 16);
  }
  const uint8_t* rows[kBandRows];
  static_assert(kBandRows == RowSource::kMaxRows);
  for (int first = 0; first < region_.height; first += kBandRows) {
    const int count = std::min(kBandRows, region_.height - first);
    FW_RETURN_IF_ERROR(source.Read(count, rows));
    std::fill(rows + count, rows + kBandRows, rows[0]);
    FilterBand(rows, count, first);
  }
  return absl::OkStatus();
}

void Resampler::FilterBand(const uint8_t* const* rows, int count, int first_row) {
  int16_t* to[kBandRows];
  for (int r = 0; r < kBandRows; ++r) to[r] = RingRow(first_row + r);
  (x_.is_wide() ? kernels_->filter_band_wide : kernels_->filter_band_narrow)(rows, axis_, scratch_,
                                                                             to);
  if (y_.is_wide()) {
    AccumulateWide(first_row, count);
  } else {
    EmitNarrow(first_row + count);
  }
}

void Resampler::EmitNarrow(int rows_ready) {
  for (; next_output_ < y_.count && y_.start[next_output_] + y_.taps <= rows_ready;
       ++next_output_) {
    const int16_t* rows[AxisFilter::kMaxNarrowTaps];
    for (int k = 0; k < y_.taps; ++k) rows[k] = RingRow(y_.start[next_output_] + k);
    kernels_->filter_rows(rows, &y_.narrow[static_cast<size_t>(next_output_) * y_.taps], y_.taps,
                          channels_ * plane_, finished_);
    writer_.WritePlanes(next_output_, finished_, plane_);
  }
}

void Resampler::AccumulateWide(int first_row, int count) {
  const size_t row_samples = channels_ * plane_;
  auto* sums = reinterpret_cast<int32_t*>(RoundUp(reinterpret_cast<uintptr_t>(sums_.data()), 64));
  for (int r = first_row; r < first_row + count; ++r) {
    for (int i = next_output_; i < y_.count && y_.start[i] <= r; ++i) {
      int32_t* sum = sums + (i % sum_rows_) * row_samples;
      if (y_.start[i] == r) std::fill_n(sum, row_samples, 0);
      const int32_t weight = y_.wide[static_cast<size_t>(i) * y_.taps + (r - y_.start[i])];
      if (weight != 0) kernels_->accumulate_row(RingRow(r), weight, row_samples, sum);
    }
    for (; next_output_ < y_.count && y_.start[next_output_] + y_.taps - 1 == r; ++next_output_) {
      kernels_->finish_row(sums + (next_output_ % sum_rows_) * row_samples, row_samples, finished_);
      writer_.WritePlanes(next_output_, finished_, plane_);
    }
  }
}

}  // namespace feedwater::server
