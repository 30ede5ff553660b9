#include "server/imaging/filter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/base/status.h"
#include "server/imaging/filter_kernels.h"
#include "server/imaging/median_kernels.h"
#include "server/imaging/mirror.h"

namespace feedwater::server {
namespace {

using kernels::kFilterPad;
using kernels::SymmetricWeights;

// `row` with `radius` pixels of `channels` numbers added on both sides.
template <typename T>
void MirrorEnds(T* row, int width, int channels, int radius) {
  for (int k = 1; k <= radius; ++k) {
    std::copy_n(row + Mirrored(-k, width) * channels, channels, row - k * channels);
    std::copy_n(row + Mirrored(width - 1 + k, width) * channels, channels,
                row + (width - 1 + k) * channels);
  }
}

constexpr size_t Rounded(size_t numbers) { return (numbers + 31) / 32 * 32; }

size_t RowNumbers(Size size, int channels) {
  return Rounded(static_cast<size_t>(size.width) * channels) + kFilterPad;
}

size_t ScratchNumbers(Size size, int channels, int radius_x, int radius_y) {
  return static_cast<size_t>(2 * radius_y + 1) * RowNumbers(size, channels) +
         RowNumbers(size, channels) + 2 * Rounded(static_cast<size_t>(radius_x) * channels);
}

// Each integer weight rounds by half a 64th of a value at most, all of them alike in an even part
// of the image: with so few that is a quarter.
bool IsFixed(int radius_x, int radius_y) { return std::max(radius_x, radius_y) <= 16; }

size_t FloatScratch(Size size, int channels, int radius_x, int radius_y) {
  return (ScratchNumbers(size, channels, radius_x, radius_y) + RowNumbers(size, channels)) *
         sizeof(float);
}

// Runs a separable filter: begin(row, to) brings a row of the source to type T, along(row, to)
// filters it, across(rows, y) finishes row y. 2 * radius_y + 1 filtered rows are kept.
template <typename T, class Begin, class Along, class Across>
absl::Status Separable(Size size, int channels, int radius_x, int radius_y, std::byte* scratch,
                       WorkClock& clock, Begin begin, Along along, Across across) {
  const int kept = 2 * radius_y + 1;
  const size_t numbers = RowNumbers(size, channels);
  T* const ring = reinterpret_cast<T*>(scratch);
  T* const row = ring + static_cast<size_t>(kept) * numbers +
                 Rounded(static_cast<size_t>(radius_x) * channels);
  const auto place = [&](int y) { return ring + static_cast<size_t>(y % kept) * numbers; };
  const T* rows[2 * kMaxBlurRadius + 1];
  int made = 0;
  for (int y = 0; y < size.height; ++y) {
    FW_RETURN_IF_ERROR(clock.Check());
    for (; made <= std::min(y + radius_y, size.height - 1); ++made) {
      begin(made, row);
      MirrorEnds(row, size.width, channels, radius_x);
      along(row, place(made));
    }
    for (int k = 0; k < kept; ++k) rows[k] = place(Mirrored(y - radius_y + k, size.height));
    across(rows, y);
  }
  return absl::OkStatus();
}

}  // namespace

Gaussian MakeGaussian(int kernel, double sigma) {
  Gaussian made;
  const int radius = kernel / 2;
  std::array<double, kMaxBlurRadius + 1> exact;
  double sum = 0;
  for (int k = 0; k <= radius; ++k) {
    exact[k] = std::exp(-0.5 * (k / sigma) * (k / sigma));
    sum += k == 0 ? exact[k] : 2 * exact[k];
  }
  int rest = 1 << 15;
  for (int k = 0; k <= radius; ++k) {
    made.weights[k] = static_cast<float>(exact[k] / sum);
    made.fixed[k] =
        static_cast<int16_t>(std::min<long>(std::lround(exact[k] / sum * (1 << 15)), 32767));
    if (k > 0) rest -= 2 * made.fixed[k];
    if (made.fixed[k] > 0) made.radius = k;
  }
  // What rounding leaves is the middle's.
  made.fixed[0] = static_cast<int16_t>(std::min(rest, 32767));
  return made;
}

size_t BlurScratch(Size size, int channels, int radius_x, int radius_y) {
  return FloatScratch(size, channels, radius_x, radius_y);
}

absl::Status GaussianBlur(const uint8_t* pixels, Size size, int channels, const Gaussian& x,
                          const Gaussian& y, std::byte* scratch, WorkClock& clock, uint8_t* out) {
  const kernels::FilterTable& table = kernels::Filters();
  const auto count = static_cast<size_t>(size.width) * channels;
  if (!IsFixed(x.radius, y.radius)) {
    float* const finished =
        reinterpret_cast<float*>(scratch) + ScratchNumbers(size, channels, x.radius, y.radius);
    return Separable<float>(
        size, channels, x.radius, y.radius, scratch, clock,
        [&](int row, float* to) { std::copy_n(pixels + row * count, count, to); },
        [&](const float* row, float* to) {
          table.along_row_f32(row, count, static_cast<size_t>(channels),
                              {x.weights.data(), x.radius}, to);
        },
        [&](const float* const* rows, int row) {
          table.across_rows_f32(rows, count, {y.weights.data(), y.radius}, finished);
          uint8_t* const to = out + row * count;
          for (size_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(finished[i] + 0.5f);
        });
  }
  return Separable<int16_t>(
      size, channels, x.radius, y.radius, scratch, clock,
      [&](int row, int16_t* to) { table.widen(pixels + row * count, count, to); },
      [&](const int16_t* row, int16_t* to) {
        table.along_row(row, count, static_cast<size_t>(channels), {x.fixed.data(), x.radius}, to);
      },
      [&](const int16_t* const* rows, int row) {
        table.across_rows(rows, count, {y.fixed.data(), y.radius}, out + row * count);
      });
}

size_t BlurFloatScratch(Size size, int radius_x, int radius_y) {
  return FloatScratch(size, 1, radius_x, radius_y);
}

absl::Status GaussianBlur(const float* plane, Size size, const Gaussian& x, const Gaussian& y,
                          std::byte* scratch, WorkClock& clock, float* out) {
  const kernels::FilterTable& table = kernels::Filters();
  const auto count = static_cast<size_t>(size.width);
  float* const finished =
      reinterpret_cast<float*>(scratch) + ScratchNumbers(size, 1, x.radius, y.radius);
  return Separable<float>(
      size, 1, x.radius, y.radius, scratch, clock,
      [&](int row, float* to) { std::copy_n(plane + row * count, count, to); },
      [&](const float* row, float* to) {
        table.along_row_f32(row, count, 1, {x.weights.data(), x.radius}, to);
      },
      [&](const float* const* rows, int row) {
        table.across_rows_f32(rows, count, {y.weights.data(), y.radius}, finished);
        std::copy_n(finished, count, out + row * count);
      });
}

absl::Status AdjustSharpness(const uint8_t* pixels, Size size, int channels, float factor,
                             WorkClock& clock, uint8_t* out) {
  const auto step = static_cast<size_t>(channels);
  const size_t row_bytes = static_cast<size_t>(size.width) * step;
  // Pixels of the edge are smooth as they are.
  if (size.width < 3 || size.height < 3) {
    std::memcpy(out, pixels, row_bytes * static_cast<size_t>(size.height));
    return absl::OkStatus();
  }
  const auto row_of = [&](int y) { return pixels + static_cast<size_t>(y) * row_bytes; };
  std::memcpy(out, pixels, row_bytes);
  for (int y = 1; y + 1 < size.height; ++y) {
    FW_RETURN_IF_ERROR(clock.Check());
    const uint8_t* const rows[3] = {row_of(y - 1) + step, row_of(y) + step, row_of(y + 1) + step};
    uint8_t* const to = out + static_cast<size_t>(y) * row_bytes;
    std::memcpy(to, row_of(y), step);
    kernels::Filters().sharpen(rows, row_bytes - 2 * step, step, factor, to + step);
    std::memcpy(to + row_bytes - step, row_of(y) + row_bytes - step, step);
  }
  std::memcpy(out + (static_cast<size_t>(size.height) - 1) * row_bytes, row_of(size.height - 1),
              row_bytes);
  return absl::OkStatus();
}

size_t MotionScratch(Size size, int channels, int length) {
  const size_t margin = static_cast<size_t>(length / 2) * 2;
  return (static_cast<size_t>(size.width) + margin) * static_cast<size_t>(length) *
         static_cast<size_t>(channels);
}

absl::Status MotionBlur(const uint8_t* pixels, Size size, int channels, int length, double dx,
                        double dy, std::byte* scratch, WorkClock& clock, uint8_t* out) {
  const int radius = length / 2;
  const auto count = static_cast<size_t>(size.width) * channels;
  const size_t stride = count + 2 * static_cast<size_t>(radius) * channels;
  auto* const ring = reinterpret_cast<uint8_t*>(scratch);  // `length` rows with mirrored ends
  const auto place = [&](int y) {
    return ring + static_cast<size_t>(y % length) * stride + static_cast<size_t>(radius) * channels;
  };
  int made = 0;
  for (int y = 0; y < size.height; ++y) {
    FW_RETURN_IF_ERROR(clock.Check());
    for (; made <= std::min(y + radius, size.height - 1); ++made) {
      std::copy_n(pixels + static_cast<size_t>(made) * count, count, place(made));
      MirrorEnds(place(made), size.width, channels, radius);
    }
    const uint8_t* rows[kMaxMotion];
    for (int k = -radius; k <= radius; ++k) {
      const int row = Mirrored(y + static_cast<int>(std::lround(k * dy)), size.height);
      rows[k + radius] = place(row) + static_cast<int>(std::lround(k * dx)) * channels;
    }
    kernels::Filters().mean_rows(rows, length, count, out + static_cast<size_t>(y) * count);
  }
  return absl::OkStatus();
}

size_t MedianScratch(Size size, int channels, int side) {
  const auto step = static_cast<size_t>(channels);
  return kernels::MedianPlanes(side, static_cast<size_t>(size.width) * step, step);
}

absl::Status MedianBlur(const uint8_t* pixels, Size size, int channels, int side,
                        std::byte* scratch, WorkClock& clock, uint8_t* out) {
  const auto step = static_cast<size_t>(channels);
  const size_t count = static_cast<size_t>(size.width) * step;
  for (int y = 0; y < size.height; ++y) {
    FW_RETURN_IF_ERROR(clock.Check());
    const uint8_t* rows[kMaxMedianSide];
    for (int k = 0; k < side; ++k) {
      const int row = std::clamp(y + k - side / 2, 0, size.height - 1);
      rows[k] = pixels + static_cast<size_t>(row) * count;
    }
    kernels::Medians().median_row(rows, side, count, step, reinterpret_cast<uint8_t*>(scratch),
                                  out + static_cast<size_t>(y) * count);
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
