#include "client/cli/picture.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/codec/image_writer.h"
#include "server/graph/element.h"
#include "server/graph/geometry_op.h"

namespace feedwater::cli {
namespace {

using server::DType;
using server::Layout;
using server::PixelFormat;
using server::PlanGraph;

// A little outside of 0..255 is rounding, or what color_jitter and mixup leave; more is another
// unit.
constexpr double kSlack = 8;
constexpr int kJpegQuality = 92;

uint8_t ToByte(double value) {
  return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 255.0)));
}

}  // namespace

const PlanGraph::Edge* EdgeInto(const PlanGraph& graph, int node, int port) {
  const PlanGraph::Edge* first = nullptr;
  for (const PlanGraph::Edge& edge : graph.edges) {
    if (edge.to != node) continue;
    if (edge.to_port == port) return &edge;
    if (first == nullptr) first = &edge;
  }
  return first;
}

bool IsPicture(const server::TensorSpec& spec) {
  if (spec.shape.size() != 3 || (spec.layout != Layout::kHWC && spec.layout != Layout::kCHW)) {
    return false;
  }
  const int64_t channels = server::ChannelsOf(spec);
  return channels == 1 || channels == 3;
}

std::vector<PixelFormat> PixelChanges(const PlanGraph& graph, size_t output) {
  std::vector<PixelFormat> changes;
  int node = -1;
  for (size_t i = 0, seen = 0; i < graph.nodes.size() && node < 0; ++i) {
    if (graph.nodes[i].kind == PlanGraph::Kind::kOutput && seen++ == output) {
      node = static_cast<int>(i);
    }
  }
  int port = 0;
  while (node >= 0) {
    const PlanGraph::Edge* edge = EdgeInto(graph, node, port);
    if (edge == nullptr) break;
    node = edge->from;
    port = edge->from_port;
    if (graph.nodes[node].pixels.has_value()) changes.push_back(*graph.nodes[node].pixels);
  }
  std::reverse(changes.begin(), changes.end());
  return changes;
}

absl::StatusOr<Picture> ToPicture(const server::Tensor& tensor,
                                  const std::vector<PixelFormat>& changes) {
  const server::Size size = server::ImageSizeOf(tensor.spec);
  const int channels = static_cast<int>(server::ChannelsOf(tensor.spec));
  const int64_t area = static_cast<int64_t>(size.width) * size.height;
  const bool planar = tensor.spec.layout == Layout::kCHW;
  const size_t step = server::DTypeSize(tensor.spec.dtype);
  bool is_known = tensor.spec.dtype == DType::kUInt8;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  std::vector<float> values(static_cast<size_t>(area * channels));  // interleaved
  for (int c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < area; ++i) {
      const int64_t at = planar ? c * area + i : i * channels + c;
      double value = server::LoadDouble(tensor.spec.dtype, tensor.data + at * step);
      for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
        if (!change->affine) continue;
        value = value / change->inverse_std[c] + change->mean[c];
        is_known = true;
      }
      if (!std::isfinite(value)) value = 0;
      low = std::min(low, value);
      high = std::max(high, value);
      values[static_cast<size_t>(i * channels + c)] = static_cast<float>(value);
    }
  }
  Picture picture;
  // Values that were only cast, such as float32 of 0..255, need nothing.
  picture.is_stretched = !is_known && (low < -kSlack || high > 255 + kSlack || high <= 1.0);
  const double scale = picture.is_stretched ? 255 / std::max(high - low, 1e-12) : 1;
  const double offset = picture.is_stretched ? -low * scale : 0;
  try {
    picture.image.create(size.height, size.width, CV_8UC3);
    for (int64_t i = 0; i < area; ++i) {
      uint8_t* bgr = picture.image.data + i * 3;  // created whole, so it is continuous
      for (int c = 0; c < 3; ++c) {
        const int from = channels == 3 ? 2 - c : 0;
        bgr[c] = ToByte(values[static_cast<size_t>(i * channels + from)] * scale + offset);
      }
    }
  } catch (const cv::Exception& error) {
    return absl::InternalError(error.err);
  }
  return picture;
}

absl::Status CheckPictureName(const std::string& path) {
  const std::string extension =
      absl::AsciiStrToLower(std::filesystem::path(path).extension().string());
  for (const char* known : {".png", ".jpg", ".jpeg", ".webp", ".bmp"}) {
    if (extension == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path,
      "' does not say what to write: a picture's name ends in .png, .jpg, .webp or .bmp"));
}

absl::StatusOr<std::string> EncodePicture(const cv::Mat& image, const std::string& path) {
  FW_RETURN_IF_ERROR(CheckPictureName(path));
  const std::string extension =
      absl::AsciiStrToLower(std::filesystem::path(path).extension().string());
  cv::Mat rgb;
  try {
    cv::cvtColor(image, rgb, cv::COLOR_BGR2RGB);
  } catch (const cv::Exception& error) {
    return absl::InternalError(error.err);
  }
  auto file = server::WritePicture({rgb.data, {rgb.cols, rgb.rows}, 3}, extension, kJpegQuality);
  if (file.ok()) return file;
  // JPEG and WebP have a largest side, which a long sheet passes.
  return absl::Status(file.status().code(),
                      absl::StrCat(file.status().message(), ": take .png, or fewer samples"));
}

}  // namespace feedwater::cli
