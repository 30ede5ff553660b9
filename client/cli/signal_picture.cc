#include "client/cli/signal_picture.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/escape.h"
#include "server/graph/element.h"

namespace feedwater::cli {
namespace {

using server::Tensor;

constexpr int64_t kMostNumbers = 64, kMostTextBytes = 600;
const cv::Scalar kWave(170, 95, 40), kAxis(216, 210, 206), kWavePaper(252, 251, 250);

double At(const Tensor& tensor, int64_t i) {
  const size_t step = server::DTypeSize(tensor.spec.dtype);
  return server::LoadDouble(tensor.spec.dtype, tensor.data + static_cast<size_t>(i) * step);
}

int HeightFor(int side) { return side * 5 / 8; }

// Rows of a matrix, or its columns, added up into fewer: what each of `from` gives to `to` has
// `from * to` parts, `to` of every old one and `from` in every new one. REQUIRES: to <= from.
struct Pooling {
  int64_t from = 0, to = 0;

  // Calls add(new, parts) for the one or two new ones that the old one falls into.
  template <typename Add>
  void ForEach(int64_t old, Add&& add) const {
    const int64_t begin = old * to, first = begin / from;
    const int64_t parts = std::min(begin + to, (first + 1) * from) - begin;
    add(first, static_cast<double>(parts));
    if (parts < to) add(first + 1, static_cast<double>(to - parts));
  }
};

// Means over the axes that are longer than `most`, straight from the field: whatever its size, no
// more is held than a cell has. The first row is the last one of the result. `share` gives what
// becomes of the value at a place.
template <typename Share>
cv::Mat Pooled(int64_t rows, int64_t columns, cv::Size most, Share&& share) {
  const Pooling down{rows, std::min<int64_t>(rows, most.height)},
      across{columns, std::min<int64_t>(columns, most.width)};
  std::vector<double> line(static_cast<size_t>(across.to)),
      sums(static_cast<size_t>(down.to * across.to));
  for (int64_t row = 0; row < rows; ++row) {
    std::fill(line.begin(), line.end(), 0);
    for (int64_t column = 0; column < columns; ++column) {
      const double value = share(row * columns + column);
      across.ForEach(
          column, [&](int64_t x, double parts) { line[static_cast<size_t>(x)] += value * parts; });
    }
    down.ForEach(row, [&](int64_t y, double parts) {
      double* sum = sums.data() + y * across.to;
      for (const double value : line) *sum++ += value * parts;
    });
  }
  cv::Mat map(static_cast<int>(down.to), static_cast<int>(across.to), CV_32F);
  const double whole = static_cast<double>(rows) * static_cast<double>(columns);
  for (int y = 0; y < map.rows; ++y) {
    const double* sum = sums.data() + int64_t{y} * across.to;
    for (int x = 0; x < map.cols; ++x)
      map.at<float>(map.rows - 1 - y, x) = static_cast<float>(sum[x] / whole);
  }
  return map;
}

// Each axis by itself: whole steps where it grows by a whole factor.
cv::Mat Grown(const cv::Mat& from, cv::Size to) {
  const auto along = [](const cv::Mat& in, cv::Size size, int old_length, int new_length) {
    cv::Mat out;
    const int way = new_length % old_length == 0 ? cv::INTER_NEAREST : cv::INTER_LINEAR;
    cv::resize(in, out, size, 0, 0, way);
    return out;
  };
  const cv::Mat wide = along(from, {to.width, from.rows}, from.cols, to.width);
  return along(wide, to, from.rows, to.height);
}

std::string RangeText(double low, double high, int64_t wrong) {
  std::string text =
      low <= high ? absl::StrFormat("%.3g to %.3g", low, high) : std::string("no finite value");
  if (wrong > 0) absl::StrAppend(&text, ", ", wrong, " not finite");
  return text;
}

// The bytes of UTF-8 text without a character at its end of which some bytes are missing.
size_t WholeCharacters(const std::string& text) {
  size_t begin = text.size();
  for (size_t length = 1; length <= 4 && begin > 0; ++length) {
    const auto byte = static_cast<unsigned char>(text[--begin]);
    if ((byte & 0xC0) == 0x80) continue;  // goes on with a character
    const size_t whole = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length < whole ? begin : text.size();
  }
  return text.size();
}

}  // namespace

SignalPicture HeatMap(const Tensor& values, int side) {
  double low = INFINITY, high = -INFINITY;
  int64_t wrong = 0;
  for (int64_t i = 0; i < values.elements(); ++i) {
    const double value = At(values, i);
    if (!std::isfinite(value)) {
      ++wrong;
      continue;
    }
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Sums of large numbers must not overflow on the way, so what is pooled is the share already.
  const double width = high > low ? high - low : 1;
  const cv::Size size(side, HeightFor(side));
  const cv::Mat map = Pooled(values.spec.shape[0], values.spec.shape[1], size, [&](int64_t i) {
    const double value = At(values, i);
    const double share = std::isfinite(value) && low < high ? (value / width - low / width) : 0;
    return std::clamp(share, 0.0, 1.0);
  });
  cv::Mat bytes;
  Grown(map, size).convertTo(bytes, CV_8U, 255);
  SignalPicture picture;
  cv::applyColorMap(bytes, picture.image, cv::COLORMAP_VIRIDIS);
  picture.range = RangeText(low, high, wrong);
  return picture;
}

SignalPicture Waveform(const Tensor& samples, int side) {
  const bool has_channels = samples.spec.shape.size() == 2;
  const int64_t channels = has_channels ? samples.spec.shape[0] : 1,
                length = samples.spec.shape[has_channels ? 1 : 0];
  double low = INFINITY, high = -INFINITY;
  int64_t wrong = 0;
  for (int64_t i = 0; i < samples.elements(); ++i) {
    const double value = At(samples, i);
    if (!std::isfinite(value)) {
      ++wrong;
      continue;
    }
    low = std::min(low, value);
    high = std::max(high, value);
  }
  SignalPicture picture;
  picture.image = cv::Mat(HeightFor(side), side, CV_8UC3, kWavePaper);
  picture.range = RangeText(low, high, wrong);
  const double most = low <= high ? std::max({std::abs(low), std::abs(high), 1e-12}) : 1;
  const double band = static_cast<double>(picture.image.rows) / static_cast<double>(channels);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const double middle = band * (static_cast<double>(channel) + 0.5);
    const auto row = [&](double value) {
      return static_cast<int>(std::lround(middle - value / most * (band / 2 - 1)));
    };
    cv::line(picture.image, {0, row(0)}, {side - 1, row(0)}, kAxis);
    for (int x = 0; x < side && length > 0; ++x) {
      const int64_t begin = x * length / side, end = std::max(begin + 1, (x + 1) * length / side);
      double least = INFINITY, greatest = -INFINITY;
      for (int64_t i = begin; i < std::min(end, length); ++i) {
        const double value = At(samples, channel * length + i);
        if (!std::isfinite(value)) continue;
        least = std::min(least, value);
        greatest = std::max(greatest, value);
      }
      if (least <= greatest) cv::line(picture.image, {x, row(greatest)}, {x, row(least)}, kWave);
    }
  }
  return picture;
}

std::string TextOf(const Tensor& field) {
  const int64_t count = field.elements();
  if (field.spec.dtype == server::DType::kUInt8) {
    std::string text(reinterpret_cast<const char*>(field.data),
                     static_cast<size_t>(std::min(count, kMostTextBytes)));
    text.resize(std::min(text.find_last_not_of('\0') + 1, text.size()));  // padding
    const bool is_cut = count > kMostTextBytes;
    // A character that the cut has gone through is no wrong byte of the text.
    if (is_cut) text.resize(WholeCharacters(text));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    return absl::StrCat(server::Escaped(text), is_cut ? " ..." : "");
  }
  std::string text;
  for (int64_t i = 0; i < std::min(count, kMostNumbers); ++i) {
    int64_t value = 0;
    server::ConvertElements(
        field.spec.dtype, field.data + static_cast<size_t>(i) * server::DTypeSize(field.spec.dtype),
        server::DType::kInt64, reinterpret_cast<std::byte*>(&value), 1);
    absl::StrAppend(&text, i > 0 ? " " : "", value);
  }
  return count > kMostNumbers ? absl::StrCat(text, " ...") : text;
}

}  // namespace feedwater::cli
