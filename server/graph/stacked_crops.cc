#include "server/graph/stacked_crops.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/joint_fields.h"

namespace feedwater::server {
namespace {

constexpr int kPlaces = 5;

// A window of an image with sides that are axes: rows of `row` values of `bytes` bytes each.
struct Window {
  int x, y;
};

}  // namespace

TensorSpec StackedCrops::OutputSpec(const TensorSpec& image) const {
  const int64_t channels = ChannelsOf(image);
  const int64_t count = mirror_ == Mirror::kNone ? kPlaces : 2 * kPlaces;
  if (image.layout == Layout::kCHW)
    return {image.dtype, Layout::kPlain, {count, channels, size_.height, size_.width}};
  return {image.dtype, Layout::kPlain, {count, size_.height, size_.width, channels}};
}

absl::Status StackedCrops::CheckSize(Size image) const {
  if ((image.width < 0 || image.width >= size_.width) &&
      (image.height < 0 || image.height >= size_.height)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("takes crops of ", size_.height, "x", size_.width, ", more than the image's ",
                   image.height < 0 ? "?" : absl::StrCat(image.height), "x",
                   image.width < 0 ? "?" : absl::StrCat(image.width), "; resize it first"));
}

absl::StatusOr<Specs> StackedCrops::Plan(absl::Span<const TensorSpec> inputs,
                                         const PlanEnvironment&) const {
  FW_RETURN_IF_ERROR(CheckSize(ImageSizeOf(inputs[0])));
  return Specs{OutputSpec(inputs[0])};
}

absl::Status StackedCrops::Run(Sample& sample, Draws) const {
  const Tensor& image = sample.inputs()[0];
  const Size size = ImageSizeOf(image.spec);
  FW_RETURN_IF_ERROR(CheckSize(size));
  FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, OutputSpec(image.spec)));
  const int width = static_cast<int>(size_.width), height = static_cast<int>(size_.height);
  const int right = size.width - width, below = size.height - height;
  // Half to even, as Python's round().
  const Window windows[kPlaces] = {{0, 0},
                                   {right, 0},
                                   {0, below},
                                   {right, below},
                                   {static_cast<int>(std::nearbyint(right / 2.0)),
                                    static_cast<int>(std::nearbyint(below / 2.0))}};
  const bool planar = image.spec.layout == Layout::kCHW;
  const int64_t channels = ChannelsOf(image.spec);
  const int64_t planes = planar ? channels : 1;
  const auto pixel = static_cast<int64_t>(DTypeSize(image.spec.dtype)) * (planar ? 1 : channels);
  const int64_t row_bytes = width * pixel;
  std::byte* to = output.data;
  const int times = mirror_ == Mirror::kNone ? 1 : 2;
  for (int i = 0; i < times * kPlaces; ++i) {
    const bool left_right = i >= kPlaces && mirror_ == Mirror::kLeftRight,
               upside_down = i >= kPlaces && mirror_ == Mirror::kUpsideDown;
    const Window window = windows[i % kPlaces];
    // The crop of the mirrored image, where it stands in this one.
    const int x = left_right ? right - window.x : window.x;
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int row = 0; row < height; ++row, to += row_bytes) {
        FW_RETURN_IF_ERROR(sample.clock().Check());
        const int in_mirrored = window.y + row;
        const int y = upside_down ? size.height - 1 - in_mirrored : in_mirrored;
        const std::byte* const from =
            image.data + ((plane * size.height + y) * size.width + x) * pixel;
        if (!left_right) {
          std::memcpy(to, from, static_cast<size_t>(row_bytes));
          continue;
        }
        for (int64_t k = 0; k < width; ++k)
          std::memcpy(to + k * pixel, from + (width - 1 - k) * pixel, static_cast<size_t>(pixel));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace feedwater::server
