// Pastes another image of the batch, made smaller, into every image, and mixes the labels by the
// areas (Qin and others, "ResizeMix", 2020). One size, one place and one permutation of partners
// are drawn for a batch. The smaller image is made by means of areas, as torch's interpolate(mode =
// "area"). A class number becomes a float32 vector with the two classes' weights.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/graph/batch_mixing.h"
#include "server/graph/element.h"
#include "server/graph/joint_fields.h"
#include "server/graph/op_params.h"
#include "server/graph/op_schema.h"

namespace feedwater::server {
namespace {

struct Params {
  Interval scale = {0.1, 0.8};
  std::optional<int64_t> num_classes;
};

template <typename T>
T LoadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// A grid of `count` values, `step` bytes from one to the next and `row` bytes from row to row.
struct Strides {
  int64_t step, row;
};

// The mean of each part of a plane of `from` pixels becomes a value of a box of `to` pixels.
template <class Load, class Store>
void Shrink(Size from, Size to, Strides in, Strides out, const std::byte* plane, std::byte* box,
            Load load, Store store) {
  for (int64_t y = 0; y < to.height; ++y) {
    const int64_t top = y * from.height / to.height,
                  bottom = ((y + 1) * from.height + to.height - 1) / to.height;
    for (int64_t x = 0; x < to.width; ++x) {
      const int64_t left = x * from.width / to.width,
                    right = ((x + 1) * from.width + to.width - 1) / to.width;
      double sum = 0;
      for (int64_t i = top; i < bottom; ++i) {
        const std::byte* at = plane + i * in.row + left * in.step;
        for (int64_t k = left; k < right; ++k, at += in.step) sum += load(at);
      }
      store(sum / static_cast<double>((bottom - top) * (right - left)),
            box + y * out.row + x * out.step);
    }
  }
}

class ResizeMix final : public BoxMixingOp {
 public:
  explicit ResizeMix(const Params& params) : BoxMixingOp(params.num_classes), params_(params) {}

 private:
  Rect DrawBox(Size size, Draws& draws) const override {
    const double scale = draws.Uniform(params_.scale.low, params_.scale.high);
    const int width = std::max(1, static_cast<int>(scale * size.width)),
              height = std::max(1, static_cast<int>(scale * size.height));
    const int x = static_cast<int>(draws.Below(size.width - width + 1)),
              y = static_cast<int>(draws.Below(size.height - height + 1));
    return {x, y, width, height};
  }

  void Paste(const TensorSpec& spec, Rect box, const std::byte* from,
             std::byte* to) const override {
    const Size size = ImageSizeOf(spec);
    const DType dtype = spec.dtype;
    const int64_t channels = ChannelsOf(spec), element = static_cast<int64_t>(DTypeSize(dtype));
    const bool planar = spec.layout == Layout::kCHW;
    const int64_t step = planar ? element : element * channels, row = size.width * step;
    const Strides strides{step, row};
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t plane = planar ? c * size.height * row : c * element;
      std::byte* const at = to + plane + box.y * row + box.x * step;
      const auto shrink = [&](auto load, auto store) {
        Shrink(size, {box.width, box.height}, strides, strides, from + plane, at, load, store);
      };
      if (dtype == DType::kUInt8) {
        shrink([](const std::byte* b) { return static_cast<double>(LoadAs<uint8_t>(b)); },
               [](double v, std::byte* b) {
                 *b = static_cast<std::byte>(static_cast<uint8_t>(std::nearbyint(v)));
               });
      } else if (dtype == DType::kFloat32) {
        shrink([](const std::byte* b) { return double{LoadAs<float>(b)}; },
               [](double v, std::byte* b) {
                 const auto value = static_cast<float>(v);
                 std::memcpy(b, &value, sizeof(value));
               });
      } else {
        shrink([dtype](const std::byte* b) { return LoadDouble(dtype, b); },
               [dtype](double v, std::byte* b) { StoreDouble(dtype, v, b); });
      }
    }
  }

  const Params params_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("resize_mix")
        .Summary("Pastes another image of the batch, made smaller, into every image, and mixes the "
                 "labels by the areas.")
        .Input({.field = "image", .layouts = kImageLayouts, .dtypes = {}, .doc = "The images."})
        .Input({.field = "label",
                .layouts = {Layout::kPlain},
                .dtypes = {},
                .doc = "Class number, or weights of the classes."})
        .Output({.field = "",
                 .layouts = kImageLayouts,
                 .dtypes = {},
                 .doc = "The images with what was pasted."})
        .Output({.field = "",
                 .layouts = {Layout::kPlain},
                 .dtypes = {},
                 .doc = "Weights of the classes."})
        .Randomness(Randomness::kPerBatch)
        .Param("scale", &Params::scale,
               "Sides of what is pasted, as a share of the image's; drawn from [low, high].",
               Range(0.01, 1))
        .Param("num_classes", &Params::num_classes,
               "Length of the label's vector; by default the dataset's number of classes.",
               Range(1, 1 << 24))
        .Cost("A pass over the batch.")
        .Example("- resize_mix: {in: [image, label], scale: [0.1, 0.8], num_classes: 10}")
        .Create<ResizeMix>());

}  // namespace
}  // namespace feedwater::server
