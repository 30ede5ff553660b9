#include "client/cli/overlay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/contact_sheet.h"
#include "server/base/escape.h"
#include "server/base/units.h"
#include "server/graph/element.h"
#include "server/graph/joint_fields.h"

namespace feedwater::cli {
namespace {

using server::Tensor;

constexpr int64_t kMostDrawn = 300, kMostTags = 40;  // of boxes of one picture; more is a blur
constexpr size_t kMostNamed = 3;                     // classes in words
constexpr size_t kMostValues = 6;                    // of a mask, in words and with tags
constexpr int kTagSize = 11, kTagInset = 2;
constexpr int64_t kIgnored = 255;  // what masks have where there is no class
constexpr double kMaskShare = 0.5;

double At(const Tensor& tensor, int64_t i) {
  const size_t step = server::DTypeSize(tensor.spec.dtype);
  return server::LoadDouble(tensor.spec.dtype, tensor.data + static_cast<size_t>(i) * step);
}

// Rows without those at the end that are padding.
int64_t RowsOf(const Tensor& tensor, const double* padding) {
  const int64_t columns = tensor.spec.shape[1];
  int64_t rows = tensor.spec.shape[0];
  const auto is_padding = [&](int64_t row) {
    for (int64_t c = 0; c < columns; ++c) {
      const double value = At(tensor, row * columns + c);
      if (value != *padding && !(std::isnan(value) && std::isnan(*padding))) return false;
    }
    return true;
  };
  while (padding != nullptr && rows > 0 && is_padding(rows - 1)) --rows;
  return rows;
}

cv::Scalar InkOn(const cv::Scalar& color) {
  const double light = 0.114 * color[0] + 0.587 * color[1] + 0.299 * color[2];
  return light > 140 ? cv::Scalar(0, 0, 0) : cv::Scalar(255, 255, 255);
}

std::string CountsText(const std::map<int64_t, int64_t>& counts, const Overlay& overlay) {
  std::vector<std::pair<int64_t, int64_t>> most;
  for (const auto& [label, count] : counts) most.emplace_back(-count, label);
  std::sort(most.begin(), most.end());
  std::vector<std::string> parts;
  for (size_t i = 0; i < most.size() && i < kMostNamed; ++i)
    parts.push_back(absl::StrCat(-most[i].first, " ", overlay.NameOf(most[i].second)));
  if (most.size() > kMostNamed) parts.push_back("...");
  return absl::StrJoin(parts, ", ");
}

// The mask as numbers, at the scale of the picture, by nearest. With one channel, its elements lie
// the same way in every layout.
cv::Mat Scaled(const Tensor& mask, cv::Size to) {
  const server::Size size = MaskSizeOf(mask.spec);
  const int64_t height = size.height, width = size.width;
  cv::Mat scaled(to, CV_32S);
  for (int y = 0; y < to.height; ++y) {
    const int64_t row = (2 * y + 1) * height / (2 * int64_t{to.height});
    for (int x = 0; x < to.width; ++x) {
      const int64_t column = (2 * x + 1) * width / (2 * int64_t{to.width});
      const double value = At(mask, row * width + column);
      scaled.at<int>(y, x) = static_cast<int>(std::clamp(value, -1e9, 1e9));
    }
  }
  return scaled;
}

bool DiffersFromNeighbour(const cv::Mat& mask, int y, int x) {
  const int value = mask.at<int>(y, x);
  return (x + 1 < mask.cols && mask.at<int>(y, x + 1) != value) ||
         (y + 1 < mask.rows && mask.at<int>(y + 1, x) != value) ||
         (x > 0 && mask.at<int>(y, x - 1) != value) || (y > 0 && mask.at<int>(y - 1, x) != value);
}

}  // namespace

server::Size MaskSizeOf(const server::TensorSpec& spec) {
  if (spec.layout == server::Layout::kHWC || spec.layout == server::Layout::kCHW)
    return server::ImageSizeOf(spec);
  return {static_cast<int>(spec.shape[1]), static_cast<int>(spec.shape[0])};
}

cv::Scalar ColorOf(int64_t label) {
  // RGB. Neighbours in number are far apart in hue.
  static constexpr uint8_t kColors[12][3] = {{228, 38, 52},   {40, 110, 235}, {52, 180, 60},
                                             {255, 170, 20},  {155, 60, 200}, {30, 200, 215},
                                             {240, 80, 190},  {150, 210, 40}, {150, 90, 40},
                                             {110, 130, 255}, {20, 140, 120}, {250, 130, 100}};
  const int64_t at = ((label % 12) + 12) % 12;
  return {static_cast<double>(kColors[at][2]), static_cast<double>(kColors[at][1]),
          static_cast<double>(kColors[at][0])};
}

std::string Overlay::NameOf(int64_t label) const {
  if (label < 0 || label >= static_cast<int64_t>(classes_.size())) return absl::StrCat(label);
  return server::Escaped(classes_[static_cast<size_t>(label)]);
}

void Overlay::DrawTag(const std::string& text, const cv::Scalar& color, int x, int y,
                      cv::Mat* picture) const {
  constexpr int kWidest = 120;
  const Lettering::Block block = lettering_.Set(text, {.size = kTagSize}, kWidest);
  const int height = Lettering::LineHeight(kTagSize), width = block.Width() + 2 * kTagInset;
  // Within the picture, whatever is asked for.
  x = std::clamp(x, 0, std::max(0, picture->cols - width));
  y = std::clamp(y, 0, std::max(0, picture->rows - height));
  const cv::Rect place =
      cv::Rect(x, y, width, height) & cv::Rect(0, 0, picture->cols, picture->rows);
  if (place.empty()) return;
  cv::rectangle(*picture, place, color, cv::FILLED);
  cv::Mat part = (*picture)(place);
  block.DrawOn(part, kTagInset, 0, InkOn(color));
}

void Overlay::DrawBoxes(const Tensor& boxes, const Tensor* labels, const double* padding,
                        server::Size size, cv::Mat* picture,
                        std::vector<std::string>* notes) const {
  const int64_t rows = RowsOf(boxes, padding);
  const double scale_x = static_cast<double>(picture->cols) / size.width,
               scale_y = static_cast<double>(picture->rows) / size.height;
  int64_t drawn = 0, outside = 0, empty = 0, wrong = 0;
  std::map<int64_t, int64_t> counts;
  struct Tag {
    int64_t label;
    int x, y;
  };
  std::vector<Tag> tags;
  for (int64_t row = 0; row < rows; ++row) {
    double box[4];
    for (int i = 0; i < 4; ++i) box[i] = At(boxes, row * 4 + i);
    const bool is_labelled = labels != nullptr && row < labels->spec.shape[0];
    // Without labels all boxes are of one colour.
    const int64_t label =
        is_labelled ? static_cast<int64_t>(std::clamp(At(*labels, row), -1e15, 1e15)) : 0;
    if (is_labelled) ++counts[label];
    if (!std::all_of(box, box + 4, [](double edge) { return std::isfinite(edge); })) {
      ++wrong;
    } else if (box[2] <= box[0] || box[3] <= box[1]) {
      ++empty;
    } else if (box[0] >= size.width || box[1] >= size.height || box[2] <= 0 || box[3] <= 0) {
      ++outside;
    } else if (drawn < kMostDrawn) {
      ++drawn;
      // Edges beyond the picture are drawn at its edge, so that every box is closed.
      const auto x = [&](double at) {
        return static_cast<int>(std::lround(std::clamp(at * scale_x, 0.0, picture->cols - 1.0)));
      };
      const auto y = [&](double at) {
        return static_cast<int>(std::lround(std::clamp(at * scale_y, 0.0, picture->rows - 1.0)));
      };
      const cv::Point first(x(box[0]), y(box[1])), last(x(box[2]), y(box[3]));
      cv::rectangle(*picture, first, last, ColorOf(label), picture->cols >= 160 ? 2 : 1);
      if (is_labelled && static_cast<int64_t>(tags.size()) < kMostTags)
        tags.push_back({label, first.x, first.y});
    }
  }
  // Above their boxes' upper edges where there is room, and over all boxes.
  for (const Tag& tag : tags) {
    const int above = tag.y - Lettering::LineHeight(kTagSize);
    DrawTag(NameOf(tag.label), ColorOf(tag.label), tag.x, above >= 0 ? above : tag.y, picture);
  }
  std::string text = rows == 1 ? "1 box" : absl::StrCat(rows, " boxes");
  if (!counts.empty()) absl::StrAppend(&text, ": ", CountsText(counts, *this));
  if (outside > 0) absl::StrAppend(&text, "; ", outside, " outside");
  if (empty > 0) absl::StrAppend(&text, "; ", empty, " without area");
  if (wrong > 0) absl::StrAppend(&text, "; ", wrong, " not finite");
  if (const int64_t left = rows - drawn - outside - empty - wrong; left > 0)
    absl::StrAppend(&text, "; ", left, " not drawn");
  notes->push_back(std::move(text));
}

void Overlay::DrawMask(const Tensor& mask, server::Size size, cv::Mat* picture,
                       std::vector<std::string>* notes) const {
  if (const server::Size own = MaskSizeOf(mask.spec); own != size) {
    notes->push_back(absl::StrCat("mask of ", own.width, "x", own.height, " does not fit"));
    return;
  }
  const cv::Mat scaled = Scaled(mask, picture->size());
  std::map<int64_t, std::vector<cv::Point>> values;  // with their pixels
  for (int y = 0; y < scaled.rows; ++y) {
    for (int x = 0; x < scaled.cols; ++x) {
      const int value = scaled.at<int>(y, x);
      if (value == 0) continue;
      values[value].emplace_back(x, y);
      const cv::Scalar color = value == kIgnored ? cv::Scalar(255, 255, 255) : ColorOf(value);
      const double share = DiffersFromNeighbour(scaled, y, x) ? 1 : kMaskShare;
      cv::Vec3b& pixel = picture->at<cv::Vec3b>(y, x);
      for (int c = 0; c < 3; ++c)
        pixel[c] = cv::saturate_cast<uint8_t>(pixel[c] * (1 - share) + color[c] * share);
    }
  }
  std::vector<std::pair<size_t, int64_t>> largest;
  for (const auto& [value, pixels] : values) largest.emplace_back(pixels.size(), value);
  std::sort(largest.rbegin(), largest.rend());
  std::vector<int64_t> named;
  for (size_t i = 0; i < largest.size() && i < kMostValues; ++i) {
    named.push_back(largest[i].second);
    // In the middle of its middle row: a place that is of the region, or between parts of it.
    const std::vector<cv::Point>& pixels = values[largest[i].second];
    const int y = pixels[pixels.size() / 2].y;
    const auto row = [y](const cv::Point& pixel) { return pixel.y == y; };
    const int left = std::find_if(pixels.begin(), pixels.end(), row)->x,
              right = std::find_if(pixels.rbegin(), pixels.rend(), row)->x;
    const cv::Point middle((left + right) / 2, y);
    if (largest[i].second != kIgnored)
      DrawTag(absl::StrCat(largest[i].second), ColorOf(largest[i].second), middle.x - 4,
              middle.y - 7, picture);
  }
  std::sort(named.begin(), named.end());
  notes->push_back(values.empty() ? "mask: 0 alone"
                                  : absl::StrCat("mask: ", absl::StrJoin(named, ", "),
                                                 values.size() > named.size() ? ", ..." : ""));
}

cv::Mat Overlay::MaskPicture(const Tensor& mask, int side, std::vector<std::string>* notes) const {
  const auto [width, height] = MaskSizeOf(mask.spec);
  const double fit = static_cast<double>(side) / std::max(height, width);
  const double scale = fit >= 1 ? std::floor(fit) : fit;
  cv::Mat picture(std::max(1, static_cast<int>(std::lround(height * scale))),
                  std::max(1, static_cast<int>(std::lround(width * scale))), CV_8UC3,
                  cv::Scalar(0, 0, 0));
  DrawMask(mask, {width, height}, &picture, notes);
  return picture;
}

void Overlay::DrawKeypoints(const Tensor& points, const double* padding, server::Size size,
                            cv::Mat* picture, std::vector<std::string>* notes) const {
  const int64_t rows = RowsOf(points, padding), columns = points.spec.shape[1];
  const double scale_x = static_cast<double>(picture->cols) / size.width,
               scale_y = static_cast<double>(picture->rows) / size.height;
  int64_t outside = 0, hidden = 0, wrong = 0, drawn = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const double x = At(points, row * columns), y = At(points, row * columns + 1);
    if (columns == 3 && At(points, row * columns + 2) == 0) {
      ++hidden;
    } else if (!std::isfinite(x) || !std::isfinite(y)) {
      ++wrong;
    } else if (x < 0 || y < 0 || x > size.width || y > size.height) {
      ++outside;
    } else if (drawn < kMostDrawn) {
      ++drawn;
      const cv::Point at(static_cast<int>(x * scale_x), static_cast<int>(y * scale_y));
      cv::circle(*picture, at, 4, cv::Scalar(255, 255, 255), cv::FILLED);
      cv::circle(*picture, at, 3, ColorOf(row), cv::FILLED);
    }
  }
  std::string text = server::FormatCount(rows, "keypoint");
  if (hidden > 0) absl::StrAppend(&text, "; ", hidden, " not visible");
  if (outside > 0) absl::StrAppend(&text, "; ", outside, " outside");
  if (wrong > 0) absl::StrAppend(&text, "; ", wrong, " not finite");
  if (const int64_t left = rows - drawn - outside - hidden - wrong; left > 0)
    absl::StrAppend(&text, "; ", left, " not drawn");
  notes->push_back(std::move(text));
}

}  // namespace feedwater::cli
