// Subtracts a mean and divides by a standard deviation, channel by channel, and stores the result
// as `dtype` in `layout`. mean and std are in the units of the pixels, 0..255: torchvision's mean
// of 0.485 is 123.675 here. The arithmetic is float32, (value - mean) * (1 / std), rounded once to
// `dtype`.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/graph/element.h"
#include "server/graph/geometry_op.h"
#include "server/graph/op_schema.h"
#include "server/graph/render.h"

namespace feedwater::server {
namespace {

constexpr char kList[] = "list of 1 or 3 numbers";
constexpr char kListJson[] =
    R"({"oneOf":[{"type":"array","items":{"type":"number"},"minItems":1,"maxItems":1},)"
    R"({"type":"array","items":{"type":"number"},"minItems":3,"maxItems":3}]})";

struct Params {
  std::vector<double> mean, std;
  std::string dtype = "float32";
  std::string layout = "CHW";
};

class Normalize : public PixelOp {
 public:
  explicit Normalize(const Params& params)
      : mean_(params.mean.begin(), params.mean.end()),
        dtype_(*DTypeFromName(params.dtype)),
        layout_(params.layout == "CHW" ? Layout::kCHW : Layout::kHWC) {
    for (double std : params.std) inverse_std_.push_back(1.0f / static_cast<float>(std));
  }

  static absl::Status Check(const Params& params) {
    for (const auto* list : {&params.mean, &params.std}) {
      if (list->size() == 1 || list->size() == 3) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("'", list == &params.mean ? "mean" : "std",
                       "' must have 1 or 3 numbers, one per channel, not ", list->size()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Specs> Plan(absl::Span<const TensorSpec> inputs,
                             const PlanEnvironment&) const override {
    const TensorSpec& input = inputs[0];
    const int64_t channels = ChannelsOf(input);
    for (size_t given : {mean_.size(), inverse_std_.size()}) {
      if (given == 1 || static_cast<int64_t>(given) == channels) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "mean and std have ", given, " numbers, but the image has ", channels, " channel"));
    }
    const size_t first = input.layout == Layout::kCHW ? 1 : 0;
    return Specs{ImageSpec(dtype_, layout_, input.shape[first], input.shape[first + 1], channels)};
  }

  bool Compose(int channels, PixelFormat* format) const override {
    // Until now the stored numbers are the pixels themselves, which every dtype holds exactly.
    if (format->affine || !PixelTypeOf(dtype_, &format->type)) return false;
    format->affine = true;
    format->planar = layout_ == Layout::kCHW;
    for (int c = 0; c < channels; ++c) {
      format->mean[c] = Mean(c);
      format->inverse_std[c] = InverseStd(c);
    }
    return true;
  }

  absl::Status Run(Sample& sample, Draws) const override {
    const Tensor& input = sample.inputs()[0];
    const Size size = ImageSizeOf(input.spec);
    const int64_t channels = ChannelsOf(input.spec);
    FW_ASSIGN_OR_RETURN(Tensor output, sample.Output(0, ImageSpec(dtype_, layout_, size.height,
                                                                  size.width, channels)));
    if (input.spec.dtype == DType::kUInt8 && input.spec.layout == Layout::kHWC) {
      PixelFormat format;
      Compose(static_cast<int>(channels), &format);
      return ResampleInto(input.as<const uint8_t>(), size, static_cast<int>(channels),
                          ImageTransform(size).geometry(), format, output.data, sample.images());
    }
    const int64_t area = static_cast<int64_t>(size.height) * size.width;
    const size_t from_step = DTypeSize(input.spec.dtype), to_step = DTypeSize(dtype_);
    for (int64_t c = 0; c < channels; ++c) {
      const float mean = Mean(c), inverse_std = InverseStd(c);
      for (int64_t i = 0; i < area; ++i) {
        const int64_t from = input.spec.layout == Layout::kCHW ? c * area + i : i * channels + c;
        const int64_t to = layout_ == Layout::kCHW ? c * area + i : i * channels + c;
        const float value =
            static_cast<float>(LoadDouble(input.spec.dtype, input.data + from * from_step));
        StoreDouble(dtype_, (value - mean) * inverse_std, output.data + to * to_step);
      }
    }
    return absl::OkStatus();
  }

 private:
  float Mean(int64_t channel) const { return mean_.size() == 1 ? mean_[0] : mean_[channel]; }
  float InverseStd(int64_t channel) const {
    return inverse_std_.size() == 1 ? inverse_std_[0] : inverse_std_[channel];
  }

  const std::vector<float> mean_;
  std::vector<float> inverse_std_;
  const DType dtype_;
  const Layout layout_;
};

const OpRegistrar kRegistrar(
    OpSchema<Params>("normalize")
        .Summary("Subtracts mean, divides by std, and stores the result as dtype in layout.")
        .Input({.field = "image",
                .layouts = kImageLayouts,
                .dtypes = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32},
                .doc = "The image, values 0..255."})
        .Output({.field = "",
                 .layouts = kImageLayouts,
                 .dtypes = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32},
                 .doc = "The normalized image."})
        .Required("mean", &Params::mean,
                  "Mean of each channel in 0..255 units, or one number for all.",
                  Range(-1e6, 1e6).As(kList, kListJson))
        .Required("std", &Params::std,
                  "Standard deviation of each channel in 0..255 units, or one number for all.",
                  Range(1e-6, 1e6).As(kList, kListJson))
        .Param("dtype", &Params::dtype, "Type of the result; uint8 is rounded and saturated.",
               OneOf({"float32", "float16", "bfloat16", "uint8"}))
        .Param("layout", &Params::layout, "Order of the result's axes.", OneOf({"CHW", "HWC"}))
        .Cost("One pass over the result.")
        .Example("- normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}")
        .AlsoKnownAs("torchvision", {"Normalize"})
        .AlsoKnownAs("Albumentations", {"Normalize"})
        .AlsoKnownAs("MindSpore", {"Normalize"})
        .NearestTo("torchvision", {"ToTensor"})
        .NearestTo("MindSpore", {"ToTensor", "Rescale", "NormalizePad"})
        .NearestTo("DALI", {"crop_mirror_normalize", "normalize"})
        .Create<Normalize>());

}  // namespace
}  // namespace feedwater::server
